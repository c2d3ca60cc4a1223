// Turns two dense bitmaps of changed blocks into change maps, and their union into one delta.
//
//   maps MONDAY_TO_TUESDAY TUESDAY_TO_WEDNESDAY OUT
//
// Both files have one bit for each 4 KiB of a volume of 1 GiB, least significant bit first.
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "cbt/change_map_file.h"
#include "cbt/units.h"

constexpr cbt::VolumeGeometry kVolume = {.capacity = cbt::kGiB, .granularity = 4 * cbt::kKiB};
constexpr uint64_t kBlocks = kVolume.capacity / kVolume.granularity;

absl::StatusOr<cbt::ChangeMap> ReadBitmap(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const std::vector<uint8_t> bytes(chars.begin(), chars.end());
  // A bitmap that is too short is an error: a missing bit says nothing about its block.
  auto bits = cbt::BitmapView::Create(bytes, /*first_bit=*/0, kBlocks);
  if (!bits.ok()) return bits.status();
  return cbt::ChangeMap::FromBitmap(*bits, kVolume);
}

absl::Status Unite(const std::string& first, const std::string& second, const std::string& out) {
  auto monday = ReadBitmap(first);
  if (!monday.ok()) return monday.status();
  auto tuesday = ReadBitmap(second);
  if (!tuesday.ok()) return tuesday.status();
  auto both = cbt::Union(*monday, *tuesday);  // and intersection, difference, symmetric difference
  if (!both.ok()) return both.status();
  both->set_identity({.volume = "vol1", .base = "monday", .target = "wednesday"});
  auto header = cbt::WriteChangeMap(*both, out);  // replaces the file as a whole
  if (!header.ok()) return header.status();
  std::printf("%" PRIu64 " bytes changed, %" PRIu64 " bytes of file\n", (*both)->changed_bytes(),
              header->file_bytes);
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: maps MONDAY_TO_TUESDAY TUESDAY_TO_WEDNESDAY OUT\n");
    return 2;
  }
  const absl::Status status = Unite(argv[1], argv[2], argv[3]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
