// Each file of the format: what is written is read, and what is broken is refused.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "repository/compression.h"
#include "repository/config.h"
#include "repository/crypto.h"
#include "repository/host.h"
#include "repository/index_file.h"
#include "repository/key_file.h"
#include "repository/lock.h"
#include "repository/pack.h"
#include "repository/parallel.h"
#include "repository/snapshot.h"
#include "repository/tree.h"
#include "tests/support/status.h"

namespace cbt::repository {
namespace formats_test {

using test::ValueOf;

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

Id IdOf(std::string_view text) { return Id::Of(Bytes(text)); }

TEST(Crypto, OpensOnlyWhatItSealed) {
  const CryptoKey key = ValueOf(CryptoKey::Random());
  for (const size_t size : {0u, 1u, 15u, 16u, 17u, 4096u}) {
    const std::vector<uint8_t> plain(size, 'x');
    std::vector<uint8_t> sealed = ValueOf(key.Seal(plain));
    EXPECT_EQ(sealed.size(), size + kSealBytes);
    EXPECT_EQ(ValueOf(key.Open(sealed)), plain);
    std::vector<uint8_t> copy = sealed;
    const std::span<uint8_t> opened = ValueOf(key.OpenInPlace(copy));
    EXPECT_EQ(std::vector<uint8_t>(opened.begin(), opened.end()), plain);
    EXPECT_FALSE(key.SealTo(plain, std::span(copy).first(size)).ok());
    for (size_t i = 0; i<sealed.size(); i += sealed.size()> 64 ? 97 : 1) {
      sealed[i] ^= 0x10;
      EXPECT_TRUE(absl::IsDataLoss(key.Open(sealed).status())) << i;
      copy = sealed;
      EXPECT_TRUE(absl::IsDataLoss(key.OpenInPlace(copy).status())) << i;
      EXPECT_EQ(copy, sealed);  // nothing is decrypted before its tag is right
      sealed[i] ^= 0x10;
    }
    sealed.pop_back();
    EXPECT_TRUE(absl::IsDataLoss(key.Open(sealed).status()));
  }
  const CryptoKey other = ValueOf(CryptoKey::Random());
  EXPECT_TRUE(absl::IsDataLoss(other.Open(ValueOf(key.Seal(Bytes("text")))).status()));
}

// The example of the paper on Poly1305-AES: an empty message, a nonce and its tag.
TEST(Crypto, KnowsThePublishedTag) {
  const auto hex = [](std::string_view text) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < text.size(); i += 2) {
      bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
    }
    return bytes;
  };
  CryptoKey key;
  const std::vector<uint8_t> k = hex("75deaa25c09f208e1dc4ce6b5cad3fbf");
  const std::vector<uint8_t> r = hex("a0f3080000f46400d0c7e9076c834403");
  std::copy(k.begin(), k.end(), key.mac_k.begin());
  std::copy(r.begin(), r.end(), key.mac_r.begin());
  std::vector<uint8_t> sealed = hex("61ee09218d29b0aaed7e154a2c5509cc");
  for (const uint8_t byte : hex("dd3fab2251f11ac759f0887129cc2ee7")) sealed.push_back(byte);
  EXPECT_EQ(ValueOf(key.Open(sealed)), std::vector<uint8_t>());
}

TEST(Crypto, RefusesCostsThatHurt) {
  const std::vector<uint8_t> salt(64, 1);
  for (const auto& [n, r, p] : {std::tuple<uint64_t, uint64_t, uint64_t>{0, 8, 1},
                                {1, 8, 1},
                                {3000, 8, 1},
                                {uint64_t{1} << 40, 8, 1},
                                {32768, 0, 1},
                                {32768, 8, 0},
                                {32768, 1 << 20, 1},
                                {32768, 8, uint64_t{1} << 60},
                                {1 << 20, 8, 1}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CryptoKey::FromPassword("x", salt, n, r, p).status()))
        << n << " " << r << " " << p;
  }
}

TEST(KeyFile, OpensWithItsPasswordAlone) {
  const CryptoKey key = ValueOf(CryptoKey::Random());
  const std::string text = ValueOf(EncodeKeyFile(key, Secret("correct horse")));
  EXPECT_EQ(text.find("horse"), std::string::npos);
  const KeyFile file = ValueOf(DecodeKeyFile(text));
  const CryptoKey opened = ValueOf(OpenKeyFile(file, Secret("correct horse")));
  EXPECT_EQ(opened.encrypt, key.encrypt);
  EXPECT_EQ(opened.mac_k, key.mac_k);
  EXPECT_EQ(opened.mac_r, key.mac_r);
  EXPECT_TRUE(absl::IsUnauthenticated(OpenKeyFile(file, Secret("correct")).status()));
  EXPECT_TRUE(absl::IsUnimplemented(DecodeKeyFile(R"({"kdf":"argon2"})").status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeKeyFile(R"({"kdf":"scrypt","salt":"!"})").status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeKeyFile("[]").status()));
}

TEST(Config, IsReadAndWritten) {
  const Config config = ValueOf(RandomConfig());
  const Config again = ValueOf(DecodeConfig(EncodeConfig(config)));
  EXPECT_EQ(again.version, 2u);
  EXPECT_EQ(again.id, config.id);
  EXPECT_EQ(again.polynomial, config.polynomial);
  EXPECT_TRUE(IsIrreducible(config.polynomial));
  EXPECT_EQ(config.polynomial >> 53, 1u);
  EXPECT_TRUE(absl::IsUnimplemented(DecodeConfig(R"({"version":3})").status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeConfig(R"({"version":2,"id":"12"})").status()));
}

TEST(Config, KnowsIrreduciblePolynomials) {
  // x^2+x+1, x^3+x+1, x^8+x^4+x^3+x+1 (AES), and the example of restic's design.
  for (const uint64_t good : {0x7u, 0xbu, 0x11bu}) EXPECT_TRUE(IsIrreducible(good)) << good;
  EXPECT_TRUE(IsIrreducible(0x25b468838dcb75));
  // x^2+1 = (x+1)^2, x^4+x^2+1 = (x^2+x+1)^2, x^2+x.
  for (const uint64_t bad : {0x5u, 0x15u, 0x6u}) EXPECT_FALSE(IsIrreducible(bad)) << bad;
}

TEST(Pack, HeaderIsReadAndWritten) {
  std::vector<PackedBlob> blobs{{IdOf("a"), BlobType::kData, 0, 132, 0},
                                {IdOf("b"), BlobType::kTree, 132, 50, 0},
                                {IdOf("c"), BlobType::kData, 182, 90, 4096}};
  const std::vector<uint8_t> header = EncodePackHeader(blobs);
  EXPECT_EQ(header.size(), 37u + 37 + 41);
  const std::vector<PackedBlob> again = ValueOf(DecodePackHeader(header, 272));
  ASSERT_EQ(again.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again[i].id, blobs[i].id);
    EXPECT_EQ(again[i].type, blobs[i].type);
    EXPECT_EQ(again[i].offset, blobs[i].offset);
    EXPECT_EQ(again[i].length, blobs[i].length);
    EXPECT_EQ(again[i].size(), i == 0 ? 100u : i == 1 ? 18u : 4096u);
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodePackHeader(header, 271).status()));
  for (size_t cut = 1; cut < header.size(); ++cut) {
    if (cut == 37 || cut == 74) continue;  // a whole number of entries, of another size
    EXPECT_TRUE(absl::IsDataLoss(DecodePackHeader(std::span(header).first(cut), 272).status()));
  }
}

TEST(IndexFile, IsReadAndWritten) {
  const std::vector<IndexedPack> packs{
      {IdOf("p"),
       {{IdOf("a"), BlobType::kData, 0, 132, 0}, {IdOf("b"), BlobType::kData, 132, 50, 77}}},
      {IdOf("q"), {{IdOf("c"), BlobType::kTree, 0, 90, 0}}}};
  std::vector<IndexedPack> read;
  std::vector<Id> supersedes;
  ASSERT_OK(DecodeIndex(EncodeIndex(packs), supersedes, [&](const IndexedPack& pack) {
    read.push_back(pack);
    return absl::OkStatus();
  }));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].id, packs[0].id);
  EXPECT_EQ(read[0].blobs[1].uncompressed, 77u);
  EXPECT_EQ(read[1].blobs[0].type, BlobType::kTree);
  EXPECT_TRUE(supersedes.empty());
}

TEST(IndexFile, MembersStandInAnyOrder) {
  const std::string a = IdOf("a").Hex();
  std::vector<Id> supersedes;
  size_t blobs = 0;
  ASSERT_OK(DecodeIndex(R"({"other":{"packs":[1,{"id":2}]},"supersedes":[")" + a +
                            R"("],"packs":[{"blobs":[{"length":40,
         "offset":0,"type":"data","new":[{"id":"x"}],"id":")" +
                            a + R"("}],"more":null,"id":")" + a + R"("}]})",
                        supersedes, [&](const IndexedPack& pack) {
                          blobs += pack.blobs.size();
                          return absl::OkStatus();
                        }));
  EXPECT_EQ(blobs, 1u);
  EXPECT_EQ(supersedes, std::vector<Id>{IdOf("a")});
}

TEST(IndexFile, RefusesWhatItCannotUse) {
  const std::string a = IdOf("a").Hex();
  const std::string good = R"({"packs":[{"id":")" + a + R"(","blobs":[{"id":")" + a +
                           R"(","type":"data","offset":0,"length":40}]}]})";
  const auto decode = [](const std::string& text) {
    std::vector<Id> supersedes;
    return DecodeIndex(text, supersedes, [](const IndexedPack&) { return absl::OkStatus(); });
  };
  ASSERT_OK(decode(good));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return decode(text);
  };
  EXPECT_TRUE(absl::IsDataLoss(with("data", "date")));
  EXPECT_TRUE(absl::IsDataLoss(with(":40", ":31")));
  EXPECT_TRUE(absl::IsDataLoss(with(":40", ":4294967296")));
  EXPECT_TRUE(absl::IsDataLoss(with("\"length\":40", "\"width\":40")));
  EXPECT_TRUE(absl::IsDataLoss(with(a, a.substr(1))));
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(decode(good.substr(0, cut)).ok());
  // Depth costs no stack.
  EXPECT_FALSE(decode(std::string(1 << 20, '[')).ok());
  EXPECT_FALSE(decode(R"({"x":)" + std::string(1 << 20, '[')).ok());
}

TEST(Tree, IsReadAndWritten) {
  TreeNode file{.name = "vol \"1\"", .size = 123};
  for (int i = 0; i < 5; ++i) file.content.push_back(IdOf(std::to_string(i)));
  const std::string json = EncodeFileTree(file, absl::UnixEpoch());
  std::vector<TreeNode> read;
  ASSERT_OK(DecodeTree(json, 5, [&](TreeNode& node) {
    read.push_back(std::move(node));
    return absl::OkStatus();
  }));
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].name, file.name);
  EXPECT_EQ(read[0].type, "file");
  EXPECT_EQ(read[0].size, 123u);
  EXPECT_EQ(read[0].content, file.content);
  const auto ignore = [](TreeNode&) { return absl::OkStatus(); };
  EXPECT_TRUE(absl::IsResourceExhausted(DecodeTree(json, 4, ignore)));
  for (size_t cut = 0; cut + 1 < json.size(); ++cut) {
    EXPECT_FALSE(DecodeTree(json.substr(0, cut), 5, ignore).ok()) << cut;
  }
}

TEST(SnapshotFile, IsReadAndWritten) {
  Snapshot snapshot{.time = absl::FromUnixNanos(1'700'000'000'123'456'789),
                    .tree = IdOf("t"),
                    .parent = IdOf("p"),
                    .paths = {"/vol"},
                    .host = "h",
                    .user = "u",
                    .program = "cbtctl 1",
                    .tags = {"cbt", "cbt.handle=a=b"}};
  const Snapshot again = ValueOf(DecodeSnapshot(EncodeSnapshot(snapshot)));
  EXPECT_EQ(again.time, snapshot.time);
  EXPECT_EQ(again.tree, snapshot.tree);
  EXPECT_EQ(again.parent, snapshot.parent);
  EXPECT_EQ(again.paths, snapshot.paths);
  EXPECT_EQ(again.tags, snapshot.tags);
  EXPECT_EQ(again.Tag("cbt.handle"), "a=b");
  EXPECT_EQ(again.Tag("cbt"), std::nullopt);
  EXPECT_TRUE(again.HasTag("cbt"));
  EXPECT_TRUE(absl::IsDataLoss(DecodeSnapshot(R"({"time":"2020-01-01T00:00:00Z"})").status()));
}

TEST(LockFile, IsStaleAsResticJudges) {
  const absl::Time now = absl::Now();
  const LockFile lock{.time = now, .host = "here", .pid = static_cast<uint64_t>(::getpid())};
  const LockFile again = ValueOf(DecodeLock(EncodeLock(lock)));
  EXPECT_EQ(again.pid, lock.pid);
  EXPECT_FALSE(again.IsStale(now, "here"));
  EXPECT_FALSE(again.IsStale(now + absl::Minutes(29), "here"));
  EXPECT_TRUE(again.IsStale(now + absl::Minutes(31), "here"));
  LockFile gone = lock;
  gone.pid = 0x7ffffffe;
  EXPECT_TRUE(gone.IsStale(now, "here"));
  EXPECT_FALSE(gone.IsStale(now, "elsewhere"));
}

TEST(Compression, IsBounded) {
  const std::vector<uint8_t> zeros(1 << 20);
  const std::vector<uint8_t> frame = ValueOf(Compress(zeros, 3));
  EXPECT_LT(frame.size(), 200u);
  EXPECT_EQ(ValueOf(DecompressExactly(frame, zeros.size())), zeros);
  EXPECT_EQ(ValueOf(DecompressUpTo(frame, zeros.size())), zeros);
  EXPECT_TRUE(absl::IsDataLoss(DecompressExactly(frame, zeros.size() - 1).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecompressExactly(frame, zeros.size() + 1).status()));
  // Memory that held more before does not make room for more.
  std::vector<uint8_t> buffer(2 * zeros.size());
  EXPECT_EQ(ValueOf(DecompressInto(frame, zeros.size(), buffer)).size(), zeros.size());
  EXPECT_TRUE(absl::IsDataLoss(DecompressInto(frame, zeros.size() - 1, buffer).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(DecompressUpTo(frame, zeros.size() - 1).status()));
  for (size_t cut = 0; cut < frame.size(); ++cut) {
    EXPECT_FALSE(DecompressUpTo(std::span(frame).first(cut), zeros.size()).ok()) << cut;
  }
}

TEST(ParallelFor, ReportsTheLowestFailure) {
  std::atomic<size_t> done = 0;
  EXPECT_TRUE(ParallelFor(1000, 4, {}, [&](size_t) {
                ++done;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(done, 1000u);
  const absl::Status failed = ParallelFor(1000, 4, {}, [](size_t i) {
    return i < 500 ? absl::OkStatus() : absl::DataLossError(std::to_string(i));
  });
  EXPECT_EQ(failed.message(), "500");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(
      ParallelFor(1, 1, stop.get_token(), [](size_t) { return absl::OkStatus(); })));
}

}  // namespace formats_test
}  // namespace cbt::repository
