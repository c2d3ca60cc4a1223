#include "map/chain/manifest_edit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cbt {
namespace manifest_edit_test {

ChainEntry Entry(uint64_t slot, uint64_t file) {
  return {.id = "snapshot-" + std::to_string(slot) + "-of-a-volume",
          .slot = slot,
          .capacity = 1 << 20,
          .floor = 1 << 20,
          .file = {.number = file, .checksum = file * 7}};
}

ChainManifest Manifest(uint64_t snapshots) {
  ChainManifest manifest;
  manifest.volume = "vol";
  manifest.granularity = 4096;
  manifest.next_slot = snapshots;
  for (uint64_t slot = 0; slot < snapshots; ++slot) {
    manifest.entries.push_back(Entry(slot, slot == 0 ? 0 : manifest.next_file++));
  }
  for (uint64_t i = 1; i < snapshots / 2; ++i) {
    manifest.nodes[{1, i}] = {.number = manifest.next_file++, .checksum = i};
  }
  return manifest;
}

std::set<uint64_t> FilesOf(const ChainManifest& manifest) {
  std::set<uint64_t> files;
  for (const ChainEntry& entry : manifest.entries) files.insert(entry.file.number);
  for (const auto& [node, file] : manifest.nodes) files.insert(file.number);
  files.erase(0);
  return files;
}

void EditAtRandom(ManifestEdit& edit, std::mt19937_64& random) {
  const ChainManifest& manifest = edit.manifest();
  const size_t at = random() % manifest.entries.size();
  const ChainNode node{1, random() % (manifest.next_slot / 2)};
  switch (random() % 5) {
    case 0:
      edit.Append(Entry(edit.NewSlot(), edit.NewFile()));
      break;
    case 1:
      if (manifest.entries.size() > 1) edit.Erase(at);
      break;
    case 2: {
      ChainEntry entry = manifest.entries[at];
      entry.floor = random() % 4096;
      if (random() % 2 == 0) entry.file = {.number = edit.NewFile(), .checksum = 1};
      edit.Replace(at, std::move(entry));
      break;
    }
    case 3:
      if (!manifest.nodes.contains(node)) edit.AddNode(node, {edit.NewFile(), 2});
      break;
    default:
      edit.EraseNode(node);
  }
}

TEST(ManifestEditTest, UndoesWhatIsNotKept) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    ChainManifest manifest = Manifest(2 + random() % 40);
    const std::vector<uint8_t> before = EncodeManifest(manifest);
    {
      ManifestEdit edit(manifest);
      for (uint64_t i = random() % 30; i > 0; --i) EditAtRandom(edit, random);
    }
    ASSERT_EQ(EncodeManifest(manifest), before) << round;
  }
}

TEST(ManifestEditTest, NamesTheFilesThatAreNotNeededAnyMore) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    ChainManifest manifest = Manifest(2 + random() % 40);
    std::set<uint64_t> needed = FilesOf(manifest);
    ManifestEdit edit(manifest);
    // One step: files that a change makes are not dropped by the same change.
    EditAtRandom(edit, random);
    edit.Keep();
    std::set<uint64_t> gone;
    for (const ChainFile& file : edit.dropped()) gone.insert(file.number);
    std::set<uint64_t> expected;
    const std::set<uint64_t> after = FilesOf(manifest);
    for (const uint64_t file : needed) {
      if (!after.contains(file)) expected.insert(file);
    }
    ASSERT_EQ(gone, expected) << round;
  }
}

TEST(ManifestEditTest, KeepsWhatIsKept) {
  ChainManifest manifest = Manifest(3);
  {
    ManifestEdit edit(manifest);
    edit.Append(Entry(edit.NewSlot(), edit.NewFile()));
    edit.Keep();
    EXPECT_TRUE(edit.kept());
  }
  EXPECT_EQ(manifest.entries.size(), 4u);
  EXPECT_EQ(PlaceOf(manifest, 3), 3u);
  EXPECT_EQ(PlaceOf(manifest, 4), 4u);
}

}  // namespace manifest_edit_test
}  // namespace cbt
