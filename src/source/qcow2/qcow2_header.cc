// Header, header extensions and snapshot table of a qcow2 file.
#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "source/qcow2/qcow2_format.h"

namespace cbt {
namespace {

constexpr uint64_t kHeaderBytesV2 = 72;
constexpr uint64_t kHeaderBytesV3 = 104;
constexpr uint64_t kHeaderBytesRead = 112;  // with the type of compression
constexpr uint32_t kMaxBackingName = 1023;

// Offsets of fields in the header.
constexpr uint64_t kVersionAt = 4;
constexpr uint64_t kBackingOffsetAt = 8;
constexpr uint64_t kBackingSizeAt = 16;
constexpr uint64_t kClusterBitsAt = 20;
constexpr uint64_t kSizeAt = 24;
constexpr uint64_t kCryptAt = 32;
constexpr uint64_t kL1SizeAt = 36;
constexpr uint64_t kL1OffsetAt = 40;
constexpr uint64_t kRefcountOffsetAt = 48;
constexpr uint64_t kRefcountClustersAt = 56;
constexpr uint64_t kSnapshotCountAt = 60;
constexpr uint64_t kSnapshotsOffsetAt = 64;
constexpr uint64_t kIncompatibleAt = 72;
constexpr uint64_t kAutoclearAt = 88;
constexpr uint64_t kRefcountOrderAt = 96;
constexpr uint64_t kHeaderLengthAt = 100;
constexpr uint64_t kCompressionTypeAt = 104;

constexpr uint64_t kDirty = 1;
constexpr uint64_t kCorrupt = 2;
constexpr uint64_t kExternalData = 4;
constexpr uint64_t kCompressionType = 8;
constexpr uint64_t kExtendedEntries = 16;

constexpr uint8_t kZstd = 1;

constexpr uint64_t kBitmapsConsistent = 1;

constexpr uint32_t kExtensionEnd = 0;
constexpr uint32_t kExtensionBackingFormat = 0xe2792aca;
constexpr uint32_t kExtensionBitmaps = 0x23852875;

absl::Status CheckFeatures(const Image& file, uint64_t incompatible) {
  const auto refusal = [&file](std::string_view text) {
    return absl::StrCat("qcow2: ", file.label(), ": ", AbslView(text));
  };
  if ((incompatible & kCorrupt) != 0) {
    return absl::FailedPreconditionError(refusal("the image is marked as corrupt"));
  }
  if ((incompatible & kDirty) != 0) {
    return absl::FailedPreconditionError(
        refusal("the image is marked as dirty: a program that wrote to it has not closed it"));
  }
  const uint64_t unknown = incompatible & ~(kCompressionType | kExtendedEntries | kExternalData);
  if (unknown != 0) {
    return absl::UnimplementedError(
        refusal(absl::StrCat("the image has unknown incompatible features: bit ",
                             std::countr_zero(unknown), " is set at offset ", kIncompatibleAt)));
  }
  return absl::OkStatus();
}

// The extensions between `begin` and `end` of the first cluster.
absl::Status ReadExtensions(const Image& file, uint64_t begin, uint64_t end, Qcow2Header& header) {
  if (begin > end) {
    return Qcow2Broken(file, kBackingOffsetAt, "the backing file name lies inside of the header");
  }
  if (begin == end) return absl::OkStatus();
  std::vector<uint8_t> area(static_cast<size_t>(end - begin));
  if (absl::Status status = file.Read(begin, area.size(), area.data()); !status.ok()) return status;
  uint64_t at = 0;
  while (area.size() - at >= 8) {
    const uint32_t type = LoadBig32(area.data() + at);
    const uint64_t length = LoadBig32(area.data() + at + 4);
    const uint64_t position = begin + at;
    if (type == kExtensionEnd) return absl::OkStatus();
    at += 8;
    if (length > area.size() - at) {
      return Qcow2Broken(file, position,
                         absl::StrCat("a header extension of ", length,
                                      " bytes reaches past the end of the area, offset ", end));
    }
    const uint8_t* const data = area.data() + at;
    if (type == kExtensionBackingFormat) {
      if (header.backing_format) return Qcow2Broken(file, position, "a second backing format");
      header.backing_format = std::string(reinterpret_cast<const char*>(data), length);
    } else if (type == kExtensionBitmaps) {
      if (header.bitmaps) return Qcow2Broken(file, position, "a second bitmaps extension");
      if (length != 24) {
        return Qcow2Broken(file, position,
                           absl::StrCat("a bitmaps extension of ", length, " bytes, not 24"));
      }
      header.bitmaps = {LoadBig32(data), LoadBig64(data + 8), LoadBig64(data + 16)};
      if (LoadBig32(data + 4) != 0) {
        return Qcow2Broken(file, position + 12, "a reserved field of the bitmaps is not zero");
      }
    }
    at += std::min<uint64_t>((length + 7) / 8 * 8, area.size() - at);
  }
  return absl::OkStatus();
}

absl::Status ReadBackingName(const Image& file, uint64_t offset, uint32_t size,
                             Qcow2Header& header) {
  if (size == 0 || size > kMaxBackingName) {
    return Qcow2Broken(
        file, kBackingSizeAt,
        absl::StrCat("a backing file name of ", size, " bytes, not 1 to ", kMaxBackingName));
  }
  if (offset > header.cluster_size() || size > header.cluster_size() - offset ||
      offset + size > file.size()) {
    return Qcow2Broken(
        file, kBackingOffsetAt,
        absl::StrCat("a backing file name at offset ", offset, ", outside of the first cluster"));
  }
  std::string name(size, '\0');
  absl::Status status = file.Read(offset, size, reinterpret_cast<uint8_t*>(name.data()));
  if (!status.ok()) return status;
  if (name.find('\0') != std::string::npos) {
    return Qcow2Broken(file, offset, "the backing file name holds a NUL byte");
  }
  header.backing_name = std::move(name);
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeQcow2(std::span<const uint8_t> first_bytes) noexcept {
  return first_bytes.size() >= 4 && LoadBig32(first_bytes.data()) == kQcow2Magic;
}

absl::Status Qcow2Broken(const Image& file, uint64_t offset, std::string_view reason) {
  return absl::DataLossError(
      absl::StrCat("qcow2: ", file.label(), ": at offset ", offset, ": ", AbslView(reason)));
}

std::string Qcow2Quoted(std::string_view text) {
  constexpr size_t kEnough = 100;
  return absl::StrCat("'", absl::CHexEscape(AbslView(text.substr(0, kEnough))),
                      text.size() > kEnough ? "...'" : "'");
}

absl::Status CheckQcow2Area(const Image& file, unsigned cluster_bits, uint64_t field,
                            uint64_t offset, uint64_t bytes, std::string_view what) {
  const char* wrong = nullptr;
  if ((offset & ((uint64_t{1} << cluster_bits) - 1)) != 0) {
    wrong = " does not begin a cluster";
  } else if (offset == 0) {
    wrong = " would overwrite the header";
  } else if (offset > file.size() || bytes > file.size() - offset) {
    wrong = " reaches past the end of the file";
  }
  if (wrong == nullptr) return absl::OkStatus();
  return Qcow2Broken(file, field,
                     absl::StrCat(AbslView(what), " of ", bytes, " bytes at offset ", offset, wrong,
                                  ", which has ", file.size(), " bytes"));
}

absl::Status CheckQcow2Tables(const Image& file, const Qcow2Header& header,
                              const Qcow2Tables& tables, uint64_t field) {
  if (tables.size > kMaxCapacity) {
    return Qcow2Broken(file, field, absl::StrCat("a virtual size of ", tables.size, " bytes"));
  }
  const uint64_t needed = BlockCount(tables.size, uint64_t{1} << header.table_bits());
  if (needed > kMaxL1Bytes / 8 || tables.l1_entries > kMaxL1Bytes / 8) {
    return Qcow2Broken(file, field,
                       absl::StrCat("a first-level table of ", std::max(needed, tables.l1_entries),
                                    " entries is over the limit of ", kMaxL1Bytes / 8));
  }
  if (tables.l1_entries < needed) {
    return Qcow2Broken(file, field,
                       absl::StrCat("a first-level table of ", tables.l1_entries, " entries where ",
                                    tables.size, " bytes need ", needed));
  }
  if (tables.l1_entries == 0) return absl::OkStatus();
  return CheckQcow2Area(file, header.cluster_bits, field, tables.l1_offset, tables.l1_entries * 8,
                        "the first-level table");
}

absl::StatusOr<Qcow2Header> ReadQcow2Header(const Image& file) {
  std::array<uint8_t, kHeaderBytesRead> bytes;
  if (absl::Status status = file.Read(0, bytes.size(), bytes.data()); !status.ok()) return status;
  if (!LooksLikeQcow2(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "qcow2: ", file.label(), ": not a qcow2 image: it does not begin with QFI\\xfb"));
  }
  Qcow2Header header;
  header.version = LoadBig32(&bytes[kVersionAt]);
  if (header.version != 2 && header.version != 3) {
    return absl::UnimplementedError(absl::StrCat("qcow2: ", file.label(), ": version ",
                                                 header.version, " at offset ", kVersionAt,
                                                 ", not 2 or 3"));
  }
  uint64_t length = kHeaderBytesV2;
  if (header.version >= 3) length = LoadBig32(&bytes[kHeaderLengthAt]);
  const uint32_t cluster_bits = LoadBig32(&bytes[kClusterBitsAt]);
  if (cluster_bits < 9 || cluster_bits > 21) {
    return Qcow2Broken(file, kClusterBitsAt,
                       absl::StrCat("clusters of 2^", cluster_bits, " bytes, not 2^9 to 2^21"));
  }
  header.cluster_bits = cluster_bits;
  if (header.version >= 3) {
    if (length < kHeaderBytesV3 || length % 8 != 0 || length > header.cluster_size()) {
      return Qcow2Broken(file, kHeaderLengthAt, absl::StrCat("a header of ", length, " bytes"));
    }
    const uint64_t incompatible = LoadBig64(&bytes[kIncompatibleAt]);
    if (absl::Status status = CheckFeatures(file, incompatible); !status.ok()) return status;
    header.extended = (incompatible & kExtendedEntries) != 0;
    header.external_data = (incompatible & kExternalData) != 0;
    if ((incompatible & kCompressionType) != 0 && length > kCompressionTypeAt) {
      header.zstd = bytes[kCompressionTypeAt] == kZstd;
    }
    if (header.extended && cluster_bits < 14) {
      return Qcow2Broken(file, kClusterBitsAt,
                         absl::StrCat("subclusters in clusters of 2^", cluster_bits, " bytes"));
    }
    if (LoadBig32(&bytes[kRefcountOrderAt]) > 6) {
      return Qcow2Broken(file, kRefcountOrderAt, "reference counts of more than 64 bits");
    }
    header.bitmaps_consistent = (LoadBig64(&bytes[kAutoclearAt]) & kBitmapsConsistent) != 0;
  }
  if (length > file.size()) return Qcow2Broken(file, file.size(), "the file ends in the header");
  if (LoadBig32(&bytes[kCryptAt]) > 2) {
    return absl::UnimplementedError(
        absl::StrCat("qcow2: ", file.label(), ": an unknown encryption at offset ", kCryptAt));
  }
  header.encrypted = LoadBig32(&bytes[kCryptAt]) != 0;
  header.active = {LoadBig64(&bytes[kSizeAt]), LoadBig64(&bytes[kL1OffsetAt]),
                   LoadBig32(&bytes[kL1SizeAt])};
  absl::Status status = CheckQcow2Tables(file, header, header.active, kSizeAt);
  if (!status.ok()) return status;
  // Not used here, but if it is invalid the file is not what it claims to be.
  const uint64_t refcount_clusters = LoadBig32(&bytes[kRefcountClustersAt]);
  status =
      CheckQcow2Area(file, cluster_bits, kRefcountOffsetAt, LoadBig64(&bytes[kRefcountOffsetAt]),
                     refcount_clusters << cluster_bits, "the reference count table");
  if (!status.ok()) return status;

  header.snapshot_count = LoadBig32(&bytes[kSnapshotCountAt]);
  header.snapshots_offset = LoadBig64(&bytes[kSnapshotsOffsetAt]);
  const uint64_t backing_offset = LoadBig64(&bytes[kBackingOffsetAt]);
  if (backing_offset != 0) {
    status = ReadBackingName(file, backing_offset, LoadBig32(&bytes[kBackingSizeAt]), header);
    if (!status.ok()) return status;
  }
  const uint64_t end = backing_offset != 0 ? backing_offset : header.cluster_size();
  if (status = ReadExtensions(file, length, end, header); !status.ok()) return status;
  if (header.bitmaps_consistent && !header.bitmaps) {
    return Qcow2Broken(file, kAutoclearAt, "bitmaps are marked as consistent, but there are none");
  }
  return header;
}

absl::StatusOr<std::vector<Qcow2Snapshot>> ReadQcow2Snapshots(const Image& file,
                                                              const Qcow2Header& header) {
  constexpr uint64_t kFixed = 40;
  constexpr uint64_t kMaxExtra = 1024;
  std::vector<Qcow2Snapshot> snapshots;
  if (header.snapshot_count == 0) return snapshots;
  if (header.snapshot_count > kMaxQcow2Snapshots) {
    return Qcow2Broken(
        file, kSnapshotCountAt,
        absl::StrCat(header.snapshot_count, " snapshots, more than ", kMaxQcow2Snapshots));
  }
  absl::Status status =
      CheckQcow2Area(file, header.cluster_bits, kSnapshotsOffsetAt, header.snapshots_offset,
                     header.snapshot_count * kFixed, "the snapshot table");
  if (!status.ok()) return status;
  const uint64_t end = std::min(file.size(), header.snapshots_offset + kMaxSnapshotTableBytes);
  uint64_t at = header.snapshots_offset;
  std::array<uint8_t, kFixed> fixed;
  std::string rest;
  for (uint64_t i = 0; i < header.snapshot_count; ++i) {
    if (at > end || end - at < kFixed) {
      return Qcow2Broken(
          file, std::min(at, end),
          absl::StrCat("the snapshot table ends in entry ", i, " of ", header.snapshot_count));
    }
    if (status = file.Read(at, kFixed, fixed.data()); !status.ok()) return status;
    const uint64_t id_size = LoadBig16(&fixed[12]);
    const uint64_t name_size = LoadBig16(&fixed[14]);
    const uint64_t extra_size = LoadBig32(&fixed[36]);
    if (extra_size > kMaxExtra) {
      return Qcow2Broken(file, at + 36,
                         absl::StrCat("a snapshot with ", extra_size, " bytes of extra data"));
    }
    const uint64_t size = extra_size + id_size + name_size;
    if (size > end - at - kFixed) {
      return Qcow2Broken(file, at, absl::StrCat("the snapshot table ends in entry ", i));
    }
    rest.resize(static_cast<size_t>(size));
    status = file.Read(at + kFixed, rest.size(), reinterpret_cast<uint8_t*>(rest.data()));
    if (!status.ok()) return status;
    Qcow2Snapshot snapshot;
    snapshot.l1_offset = LoadBig64(fixed.data());
    snapshot.l1_entries = LoadBig32(&fixed[8]);
    snapshot.seconds = LoadBig32(&fixed[16]);
    if (extra_size >= 16) {
      snapshot.virtual_size = LoadBig64(reinterpret_cast<const uint8_t*>(rest.data()) + 8);
    } else if (header.version == 2) {
      // qemu does not resize such images while they have snapshots.
      snapshot.virtual_size = header.active.size;
    } else {
      return Qcow2Broken(file, at + 36, "a snapshot without a virtual size");
    }
    snapshot.id = rest.substr(extra_size, id_size);
    snapshot.name = rest.substr(extra_size + id_size);
    snapshots.push_back(std::move(snapshot));
    at += (kFixed + size + 7) / 8 * 8;
  }
  return snapshots;
}

}  // namespace cbt
