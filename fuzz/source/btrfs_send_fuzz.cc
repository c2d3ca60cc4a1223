// Untrusted send streams, and commands of all kinds in any order with valid checksums: an error, or
// a map with every change that the stream makes to a file that was not replaced. A file that no
// command names has no map.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "cbt/source/btrfs_send.h"
#include "cbt/units.h"
#include "fuzz/support/check.h"
#include "fuzz/support/input.h"
#include "tests/support/btrfs_writer.h"

namespace {

class Input final : public cbt::fuzz::Input {
 public:
  using cbt::fuzz::Input::Input;

  std::string Path() {
    static const char* const kPaths[] = {"f", "g", "d", "d/f", "d/g", "d/e", "d/e/f", "e", "", "x"};
    return kPaths[Take(1) % std::size(kPaths)];
  }
  std::string Bytes(size_t most) {
    const size_t count = std::min(most, size_);
    std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }
};

constexpr uint64_t kCapacity = cbt::kMiB;

uint64_t Offset(Input& input) {
  const uint64_t choice = input.Take(1);
  return choice == 255 ? input.Take(8) : choice == 254 ? input.Take(4) : choice * 4096;
}

void AddCommand(cbt::test::BtrfsWriter& writer, Input& input) {
  const uint64_t type = input.Take(1);
  const std::string path = input.Path();
  switch (type % 32) {
    case 0:
      writer.Snapshot();
      break;
    case 1:
      writer.Full();
      break;
    case 2:
    case 3:
      writer.MakeFile(path);
      break;
    case 4:
      writer.MakeDirectory(path);
      break;
    case 5:
    case 6:
    case 7:
      writer.Rename(path, input.Path());
      break;
    case 8:
    case 9:
      writer.Link(path, input.Path());
      break;
    case 10:
    case 11:
      writer.Unlink(path);
      break;
    case 12: {
      const uint64_t offset = Offset(input);
      writer.Write(path, offset, input.Bytes(input.Take(1)));
      break;
    }
    case 13: {
      const uint64_t offset = Offset(input);
      writer.Clone(path, offset, Offset(input));
      break;
    }
    case 14:
    case 15:
      writer.Truncate(path, Offset(input));
      break;
    case 16: {
      const auto mode = static_cast<uint32_t>(input.Take(1));
      const uint64_t offset = Offset(input);
      writer.Allocate(path, mode, offset, Offset(input));
      break;
    }
    case 17: {
      const uint64_t offset = Offset(input);
      writer.WriteEncoded(path, offset, Offset(input), input.Bytes(3));
      break;
    }
    case 18:
      writer.Times(path);
      break;
    case 19: {
      const auto number = static_cast<uint16_t>(input.Take(1));
      writer.Command(number, input.Bytes(input.Take(1)));
      break;
    }
    case 20:
      writer.End();
      break;
    default: {
      const uint64_t offset = Offset(input);
      writer.Update(path, offset, Offset(input));
    }
  }
}

void Play(const std::string& bytes, const cbt::BtrfsSendOptions& options) {
  const auto stream = cbt::MakeBorrowedMemoryStream(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "fuzz");
  const auto map = cbt::ReadBtrfsSend(*stream, options);
  if (!map.ok()) {
    CBT_FUZZ_CHECK(map.status().code() != absl::StatusCode::kInternal);
    CBT_FUZZ_CHECK(!map.status().message().empty());
    return;
  }
  CBT_FUZZ_CHECK(stream->position() == bytes.size());
  if (options.capacity.has_value()) {
    CBT_FUZZ_CHECK(map->view().capacity() == *options.capacity);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint64_t choice = input.Take(1);
  cbt::BtrfsSendOptions options;
  if ((choice & 1) != 0) options.path = input.Path();
  if ((choice & 2) != 0) options.base_path = input.Path();
  if ((choice & 4) != 0) options.capacity = kCapacity;
  options.single_name = (choice & 8) != 0;
  options.path_exists = (choice & 64) != 0;
  options.granularity = (choice & 16) != 0 ? 65536 : 4096;
  if ((choice & 32) != 0) {
    Play(input.Bytes(SIZE_MAX), options);
    return 0;
  }
  const auto version = static_cast<uint32_t>(1 + (choice >> 6) % 3);
  cbt::test::BtrfsWriter writer(version);
  const uint64_t flip = input.Take(2);
  if ((flip & 15) != 0) writer.Snapshot();
  while (!input.empty()) AddCommand(writer, input);

  // One more command for a file that keeps its name: it must be in the map, whatever came before.
  cbt::test::BtrfsWriter marked = writer;
  marked.Update("marked", 8192, 1).End();
  options.path = "marked";
  options.base_path.clear();
  const std::string& bytes = marked.bytes();
  options.capacity = kCapacity;
  const auto stream = cbt::MakeBorrowedMemoryStream(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "fuzz");
  const auto map = cbt::ReadBtrfsSend(*stream, options);
  if (map.ok()) CBT_FUZZ_CHECK(map->view().Contains(8192 / options.granularity));
  // A file that no command names is not reported as unchanged.
  if (bytes.find("absent") == std::string::npos) {
    cbt::BtrfsSendOptions unnamed = options;
    unnamed.path = "absent";
    unnamed.single_name = true;
    unnamed.path_exists = false;
    const auto again = cbt::MakeBorrowedMemoryStream(
        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "fuzz");
    CBT_FUZZ_CHECK(!cbt::ReadBtrfsSend(*again, unnamed).ok());
  }
  // Every command has a checksum, from this version on.
  std::string flipped = bytes;
  constexpr size_t kStreamHeader = 17;
  const size_t bit = kStreamHeader * 8 + flip % ((bytes.size() - kStreamHeader) * 8);
  flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
  const auto damaged = cbt::MakeBorrowedMemoryStream(
      {reinterpret_cast<const uint8_t*>(flipped.data()), flipped.size()}, "fuzz");
  CBT_FUZZ_CHECK(!cbt::ReadBtrfsSend(*damaged, options).ok());

  options.path = (choice & 1) != 0 ? "f" : "";
  Play(writer.End().bytes(), options);
  return 0;
}
