// Writes btrfs send streams, valid and invalid. Shares no code with the reader.
#ifndef CBT_TESTS_SUPPORT_BTRFS_WRITER_H_
#define CBT_TESTS_SUPPORT_BTRFS_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cbt::test {

// Bit by bit, without inverting the register.
inline uint32_t Crc32c(const std::string& bytes, uint32_t crc = 0) {
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return crc;
}

inline std::string Little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 0xff);
  return text;
}

// A type, a length, a value.
inline std::string Attribute(uint16_t type, const std::string& value) {
  return Little(type, 2) + Little(value.size(), 2) + value;
}

class BtrfsWriter {
 public:
  explicit BtrfsWriter(uint32_t version = 1) : version_(version) {
    bytes_ = std::string("btrfs-stream\0", 13) + Little(version, 4);
  }

  BtrfsWriter& Command(uint16_t type, const std::string& body) {
    std::string command = Little(body.size(), 4) + Little(type, 2) + Little(0, 4) + body;
    const std::string crc = Little(Crc32c(command), 4);
    command.replace(6, 4, crc);
    bytes_ += command;
    return *this;
  }

  BtrfsWriter& Full() {
    return Command(1, Attribute(15, "target") + Attribute(1, std::string(16, '\x12')) +
                          Attribute(2, Little(7, 8)));
  }
  BtrfsWriter& Snapshot() {
    return Command(2, Attribute(15, "target") + Attribute(1, std::string(16, '\x12')) +
                          Attribute(2, Little(7, 8)) + Attribute(20, std::string(16, '\xab')) +
                          Attribute(21, Little(6, 8)));
  }
  BtrfsWriter& MakeFile(const std::string& path) {
    return Command(3, Attribute(15, path) + Attribute(3, Little(257, 8)));
  }
  BtrfsWriter& MakeDirectory(const std::string& path) {
    return Command(4, Attribute(15, path) + Attribute(3, Little(258, 8)));
  }
  BtrfsWriter& Rename(const std::string& from, const std::string& to) {
    return Command(9, Attribute(15, from) + Attribute(16, to));
  }
  BtrfsWriter& Link(const std::string& path, const std::string& existing) {
    return Command(10, Attribute(15, path) + Attribute(17, existing));
  }
  BtrfsWriter& Unlink(const std::string& path) { return Command(11, Attribute(15, path)); }
  BtrfsWriter& Write(const std::string& path, uint64_t offset, const std::string& data) {
    return Command(15, Attribute(15, path) + Attribute(18, Little(offset, 8)) +
                           (version_ >= 2 ? Little(19, 2) + data : Attribute(19, data)));
  }
  BtrfsWriter& Clone(const std::string& path, uint64_t offset, uint64_t length) {
    return Command(16, Attribute(18, Little(offset, 8)) + Attribute(24, Little(length, 8)) +
                           Attribute(15, path) + Attribute(20, std::string(16, '\xab')) +
                           Attribute(21, Little(6, 8)) + Attribute(22, "source") +
                           Attribute(23, Little(0, 8)));
  }
  BtrfsWriter& Truncate(const std::string& path, uint64_t size) {
    return Command(17, Attribute(15, path) + Attribute(4, Little(size, 8)));
  }
  BtrfsWriter& Times(const std::string& path) {
    return Command(20, Attribute(15, path) + Attribute(11, std::string(12, '\0')));
  }
  BtrfsWriter& Update(const std::string& path, uint64_t offset, uint64_t length) {
    return Command(22, Attribute(15, path) + Attribute(18, Little(offset, 8)) +
                           Attribute(4, Little(length, 8)));
  }
  BtrfsWriter& Allocate(const std::string& path, uint32_t mode, uint64_t offset, uint64_t length) {
    return Command(23, Attribute(15, path) + Attribute(25, Little(mode, 4)) +
                           Attribute(18, Little(offset, 8)) + Attribute(4, Little(length, 8)));
  }
  BtrfsWriter& WriteEncoded(const std::string& path, uint64_t offset, uint64_t length,
                            const std::string& data) {
    return Command(25, Attribute(15, path) + Attribute(18, Little(offset, 8)) +
                           Attribute(27, Little(length, 8)) + Attribute(28, Little(length, 8)) +
                           Attribute(29, Little(0, 8)) + Attribute(30, Little(1, 4)) +
                           Little(19, 2) + data);
  }
  BtrfsWriter& End() { return Command(21, ""); }

  const std::string& bytes() const { return bytes_; }

 private:
  uint32_t version_;
  std::string bytes_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_BTRFS_WRITER_H_
