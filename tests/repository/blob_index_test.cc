#include "repository/blob_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/status.h"

namespace cbt::repository {
namespace blob_index_test {

Id RandomId(std::mt19937_64& random) {
  Id id;
  for (uint8_t& byte : id.bytes) byte = static_cast<uint8_t>(random());
  return id;
}

TEST(BlobIndex, FindsWhatWasAdded) {
  std::mt19937_64 random(1);
  BlobIndex index(1 << 20);
  std::map<std::pair<Id, BlobType>, std::pair<Id, uint32_t>> model;
  for (int i = 0; i < 300; ++i) {
    IndexedPack pack{RandomId(random)};
    for (uint32_t j = 0; j < 20; ++j) {
      const auto type = static_cast<BlobType>(random() & 1);
      // Some that are there already, in another pack.
      const Id id =
          !model.empty() && random() % 8 == 0 ? model.begin()->first.first : RandomId(random);
      pack.blobs.push_back({id, type, j * 100, 99, 0});
      model.try_emplace({id, type}, pack.id, j * 100);
    }
    ASSERT_OK(index.Add(pack));
  }
  EXPECT_EQ(index.size(), model.size());
  for (const auto& [key, place] : model) {
    const std::optional<BlobPlace> found = index.Find(key.second, key.first);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->pack, place.first);
    EXPECT_EQ(found->blob.offset, place.second);
    EXPECT_EQ(found->blob.id, key.first);
  }
  EXPECT_FALSE(index.Find(BlobType::kData, RandomId(random)).has_value());
}

TEST(BlobIndex, ClaimsOnce) {
  std::mt19937_64 random(2);
  BlobIndex index(100);
  const Id id = RandomId(random);
  EXPECT_TRUE(index.Claim(BlobType::kData, id));
  EXPECT_FALSE(index.Claim(BlobType::kData, id));
  EXPECT_TRUE(index.Claim(BlobType::kTree, id));  // another blob
  EXPECT_FALSE(index.Find(BlobType::kData, id).has_value());
  const Id pack = RandomId(random);
  ASSERT_OK(index.Add({pack, {{id, BlobType::kData, 7, 40, 0}}}));
  EXPECT_EQ(index.Find(BlobType::kData, id)->blob.offset, 7u);
  EXPECT_FALSE(index.Claim(BlobType::kData, id));
}

TEST(BlobIndex, HasABound) {
  std::mt19937_64 random(3);
  BlobIndex index(3);
  IndexedPack pack{RandomId(random)};
  for (int i = 0; i < 4; ++i) pack.blobs.push_back({RandomId(random), BlobType::kData, 0, 40, 0});
  EXPECT_TRUE(absl::IsResourceExhausted(index.Add(pack)));
  // What was taken before is where it was, also beside further packs.
  EXPECT_EQ(index.Find(BlobType::kData, pack.blobs.front().id)->pack, pack.id);
  const PackedBlob claimed{RandomId(random), BlobType::kTree, 0, 40, 0};
  EXPECT_TRUE(index.Claim(claimed.type, claimed.id));
  const Id other = RandomId(random);
  ASSERT_OK(index.Add({other, {claimed}}));
  EXPECT_EQ(index.Find(BlobType::kData, pack.blobs.front().id)->pack, pack.id);
  EXPECT_EQ(index.Find(claimed.type, claimed.id)->pack, other);
}

}  // namespace blob_index_test
}  // namespace cbt::repository
