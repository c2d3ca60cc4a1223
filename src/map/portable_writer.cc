#include "map/portable_writer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

uint32_t RunBytes(uint32_t runs) noexcept { return 2 + 4 * runs; }

template <typename T>
void AppendNumber(std::vector<uint8_t>& bytes, T number) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof(number));
  std::memcpy(bytes.data() + at, &number, sizeof(number));
}

}  // namespace

PortableWriter::PortableWriter(uint64_t expected, uint64_t most) : most_(most) {
  // Twice: for the tables too, which are smaller than their containers.
  if (expected != 0) payload_.reserve(static_cast<size_t>(std::min(2 * expected, most_)));
  AppendNumber(bytes_, uint64_t{0});
}

void PortableWriter::Append(const void* bytes, size_t size) {
  const auto* const first = static_cast<const uint8_t*>(bytes);
  payload_.insert(payload_.end(), first, first + size);
}

void PortableWriter::OpenGroup(uint64_t key) {
  const auto high = static_cast<uint32_t>(key >> 16);
  if (open_ && high == high_) return;
  CloseGroup();
  high_ = high;
  open_ = true;
}

void PortableWriter::BeginContainer(uint64_t key, uint32_t cardinality, bool runs) {
  OpenGroup(key);
  descriptors_.push_back(static_cast<uint16_t>(key));
  descriptors_.push_back(static_cast<uint16_t>(cardinality - 1));
  flags_.push_back(runs ? 1 : 0);
  any_runs_ |= runs;
  starts_.push_back(static_cast<uint32_t>(payload_.size()));
}

bool PortableWriter::AppendFew(uint64_t key, const uint8_t* words) {
  std::array<uint16_t, kMaxArrayCardinality + simd::kContainerSlack> values;
  const auto [count, runs] = simd::Containers().collect_few(words, values.data());
  if (count == simd::kNotFew) return false;
  const auto cardinality = static_cast<uint32_t>(count);
  if (RunBytes(static_cast<uint32_t>(runs)) < PlainBytes(cardinality)) return false;
  if (cardinality == 0) return true;
  BeginContainer(key, cardinality, false);
  Append(values.data(), 2 * count);
  return true;
}

void PortableWriter::AppendArray(uint64_t key, const uint8_t* words, uint32_t cardinality) {
  BeginContainer(key, cardinality, false);
  std::array<uint16_t, kMaxArrayCardinality + simd::kContainerSlack> values;
  simd::Containers().collect_values(words, values.data());
  Append(values.data(), 2 * size_t{cardinality});
}

void PortableWriter::AppendPairs(uint64_t key, const uint8_t* pairs, uint32_t count,
                                 uint32_t cardinality) {
  BeginContainer(key, cardinality, true);
  const auto runs = static_cast<uint16_t>(count);
  Append(&runs, sizeof(runs));
  Append(pairs, 4 * size_t{count});
}

void PortableWriter::AddWords(uint64_t key, const uint8_t* words) {
  // Most containers of most maps are sparse, or empty: one pass finds their values and counts them.
  if (AppendFew(key, words)) return;
  const simd::BitCounts counts = simd::CountBits().single(words, nullptr, kBitsetWords, 0);
  const auto cardinality = static_cast<uint32_t>(counts.ones);
  const auto runs = static_cast<uint32_t>(counts.starts);
  if (RunBytes(runs) >= PlainBytes(cardinality)) {
    if (cardinality <= kMaxArrayCardinality) {
      AppendArray(key, words, cardinality);
    } else {
      BeginContainer(key, cardinality, false);
      Append(words, kBitsetBytes);
    }
    return;
  }
  std::array<uint64_t, kMaxRunsKept + simd::kRunSlack> offsets;
  std::array<uint64_t, kMaxRunsKept + simd::kRunSlack> lengths;
  const simd::RunScan scan = simd::ExtractRuns().single(
      words, nullptr, kBitsetWords, 0, 0, 0, offsets.data(), lengths.data(), kMaxRunsKept);
  if (scan.open != 0) lengths[scan.runs] = kContainerBlocks - offsets[scan.runs];
  std::array<uint16_t, 2 * kMaxRunsKept> pairs;
  for (size_t i = 0; i < runs; ++i) {
    pairs[2 * i] = static_cast<uint16_t>(offsets[i]);
    pairs[2 * i + 1] = static_cast<uint16_t>(lengths[i] - 1);
  }
  AppendPairs(key, reinterpret_cast<const uint8_t*>(pairs.data()), runs, cardinality);
}

void PortableWriter::AddRuns(uint64_t key, const uint16_t* pairs, uint32_t count,
                             uint32_t cardinality) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(pairs);
  if (RunBytes(count) < PlainBytes(cardinality)) {
    AppendPairs(key, bytes, count, cardinality);
  } else if (cardinality <= kMaxArrayCardinality) {
    BeginContainer(key, cardinality, false);
    for (size_t i = 0; i < count; ++i) {
      for (uint32_t v = pairs[2 * i]; v <= uint32_t{pairs[2 * i]} + pairs[2 * i + 1]; ++v) {
        AppendNumber(payload_, static_cast<uint16_t>(v));
      }
    }
  } else {
    BeginContainer(key, cardinality, false);
    ContainerWords words;
    CopyInto({key, bytes, count, cardinality, ContainerKind::kRun}, words);
    Append(words.data(), kBitsetBytes);
  }
}

void PortableWriter::AddFull(uint64_t key) {
  constexpr std::array<uint16_t, 2> kAll = {0, 0xffff};
  AddRuns(key, kAll.data(), 1, kContainerBlocks);
}

void PortableWriter::AddContainer(const Container& container) {
  const uint32_t runs = CountRuns(container);
  const bool as_runs = RunBytes(runs) < PlainBytes(container.cardinality);
  if (as_runs != (container.kind == ContainerKind::kRun)) {
    ContainerWords words;
    CopyInto(container, words);
    AddWords(container.key, reinterpret_cast<const uint8_t*>(words.data()));
  } else if (as_runs) {
    AppendPairs(container.key, container.data, container.count, container.cardinality);
  } else {
    BeginContainer(container.key, container.cardinality, false);
    Append(container.data, PlainBytes(container.cardinality));
  }
}

void PortableWriter::CloseGroup() {
  if (!open_) return;
  const auto count = static_cast<uint32_t>(flags_.size());
  // The upper half, which offsets do not count, and the tables.
  std::vector<uint8_t> head;
  AppendNumber(head, high_);
  const size_t begin = head.size();
  if (any_runs_) {
    AppendNumber(head, uint32_t{12347} | (count - 1) << 16);
    std::vector<uint8_t> bits((count + 7) / 8);
    for (uint32_t i = 0; i < count; ++i) {
      bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | flags_[i] << i % 8);
    }
    head.insert(head.end(), bits.begin(), bits.end());
  } else {
    AppendNumber(head, uint32_t{12346});
    AppendNumber(head, count);
  }
  const auto* const descriptors = reinterpret_cast<const uint8_t*>(descriptors_.data());
  head.insert(head.end(), descriptors, descriptors + 2 * descriptors_.size());
  if (!any_runs_ || count >= 4) {
    const auto size = static_cast<uint32_t>(head.size() - begin + 4 * size_t{count});
    for (uint32_t& start : starts_) start += size;
    const auto* const starts = reinterpret_cast<const uint8_t*>(starts_.data());
    head.insert(head.end(), starts, starts + 4 * size_t{count});
  }
  if (groups_ == 0) {
    // Most maps have one group: its containers stay in memory that has already been touched.
    head.insert(head.begin(), bytes_.begin(), bytes_.end());
    payload_.insert(payload_.begin(), head.begin(), head.end());
    bytes_.swap(payload_);
  } else {
    bytes_.insert(bytes_.end(), head.begin(), head.end());
    bytes_.insert(bytes_.end(), payload_.begin(), payload_.end());
  }
  ++groups_;
  open_ = false;
  any_runs_ = false;
  descriptors_.clear();
  flags_.clear();
  starts_.clear();
  payload_.clear();
}

bool PortableWriter::too_large() const noexcept {
  // A lower bound for the open group's tables. If this is true, Finish() must fail too: a caller
  // stops adding here, so a map that turned out small enough would silently lack the rest.
  return bytes_.size() + payload_.size() + 4 * flags_.size() > most_;
}

absl::Status PortableWriter::TooLarge() {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the change map would exceed ", MapLimit::Current(), " bytes; use a coarser granularity"));
}

absl::StatusOr<std::vector<uint8_t>> PortableWriter::Finish() {
  CloseGroup();
  if (too_large()) return TooLarge();
  std::memcpy(bytes_.data(), &groups_, sizeof(groups_));
  return std::move(bytes_);
}

}  // namespace cbt
