// pipeline/<style>/<pattern>/<bytes>/<stage>: the whole way from the bits of a volume to tuples
// that a client has checked, in one thread and without a transport. Each stage includes those
// before it:
//
//   cursor    extents, or blocks of the style's size, in batches
//   encode    and messages of 8192 tuples
//   digest    and the sender's digest
//   decode    and the tuples of the messages, checked by the rules of a stream
//   cbt       and the receiver's digest: the whole way
//
//   ctz       the obvious loop over the words that lists the extents, or the blocks, and no more
//   peer      the same loop, libprotobuf's messages built, serialised and parsed, the tuples
//   checked
//
// Styles: `extents`, `blocks` of the bitmap's granularity, `blocks64K` (16 bits each). The pattern
// `map` is `clustered` in a change map; the obvious loop reads its bitmap. Items are tuples.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/bitmaps.h"
#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/extent.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "csi.pb.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kBytes = 64 * kMiB;  // of a bitmap
constexpr uint64_t kGranularity = 4096;
constexpr size_t kTuples = 8192;  // of a message

struct Style {
  const char* name;
  uint64_t block_size;  // 0: extents
};
constexpr Style kStyles[] = {
    {"extents", 0}, {"blocks", kGranularity}, {"blocks64K", 16 * kGranularity}};

enum class Stage { kCursor, kEncode, kDigest, kDecode, kWhole };

struct Volume {
  std::string pattern;
  std::vector<uint64_t> words;
  std::unique_ptr<ChangeMap> map;

  uint64_t capacity() const { return words.size() * 64 * kGranularity; }
};

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) std::abort();
  return *std::move(value);
}

BitmapView BitsOf(const Volume& volume) {
  return Value(BitmapView::Create({reinterpret_cast<const uint8_t*>(volume.words.data()), kBytes},
                                  0, kBytes * 8));
}

// The rows of a pattern run one after another and share its bits.
const Volume& VolumeOf(const Pattern& pattern, bool as_map) {
  static Volume present;
  const std::string name = as_map ? "map" : pattern.name;
  if (present.pattern == name) return present;
  present = {name, Differences(pattern, kBytes / 8), nullptr};
  if (as_map) {
    const BitmapView bits = BitsOf(present);
    present.map = std::make_unique<ChangeMap>(Value(ChangeMap::FromBitmap(
        bits, {.capacity = present.capacity(), .granularity = kGranularity})));
  }
  return present;
}

std::unique_ptr<ExtentCursor> OpenCursor(const Volume& volume, uint64_t block_size) {
  const VolumeGeometry geometry = {.capacity = volume.capacity(), .granularity = kGranularity};
  std::unique_ptr<ExtentCursor> cursor =
      volume.map != nullptr ? MakeChangeMapCursor(*volume.map)
                            : Value(MakeBorrowedBitmapCursor(BitsOf(volume), geometry));
  return block_size == 0 ? std::move(cursor) : Value(ToBlocks(std::move(cursor), block_size));
}

// Both ends of a stream without a transport.
class Pipeline {
 public:
  Pipeline(Stage stage, BlockMetadataType type, uint64_t capacity)
      : stage_(stage),
        type_(type),
        capacity_(capacity),
        message_(kMaxHeaderBytes + kTuples * kMaxTupleBytes) {
    Begin();
  }

  void Add(const ExtentBatch& batch) {
    tuples_ += batch.size();
    if (stage_ == Stage::kCursor) return benchmark::DoNotOptimize(batch.offsets().data());
    for (size_t taken = 0; taken < batch.size();) {
      const size_t count = std::min(batch.size() - taken, kTuples - waiting_);
      const auto offsets = batch.offsets().subspan(taken, count);
      const auto lengths = batch.lengths().subspan(taken, count);
      const EncodedTuples done =
          EncodeTuples(offsets, lengths, std::span(message_).subspan(bytes_));
      if (stage_ >= Stage::kDigest) sent_.Add(offsets, lengths);
      bytes_ += done.bytes;
      waiting_ += done.tuples;
      taken += done.tuples;
      if (waiting_ == kTuples) Deliver();
    }
  }

  uint64_t Finish() {
    if (waiting_ != 0) Deliver();
    const bool whole = stage_ < Stage::kWhole || sent_.digest() == received_.digest();
    if (!whole || (stage_ >= Stage::kDecode && checker_.tuples() != tuples_)) std::abort();
    return tuples_;
  }

 private:
  void Begin() {
    bytes_ = EncodeHeader(type_, capacity_, message_.data());
    waiting_ = 0;
  }

  void Deliver() {
    benchmark::DoNotOptimize(message_.data());
    if (stage_ >= Stage::kDecode) {
      if (!DecodeMetadataMessage(std::span(message_).first(bytes_), decoded_).ok() ||
          !checker_.Check(decoded_).ok()) {
        std::abort();
      }
    }
    if (stage_ >= Stage::kWhole)
      received_.Add(decoded_.tuples.offsets(), decoded_.tuples.lengths());
    Begin();
  }

  const Stage stage_;
  const BlockMetadataType type_;
  const uint64_t capacity_;
  std::vector<uint8_t> message_;
  size_t bytes_ = 0;
  size_t waiting_ = 0;
  uint64_t tuples_ = 0;
  StreamDigest sent_;
  StreamDigest received_;
  MetadataMessage decoded_;
  StreamChecker checker_{0};
};

uint64_t RunPipeline(const Volume& volume, const Style& style, Stage stage) {
  const auto cursor = OpenCursor(volume, style.block_size);
  Pipeline pipeline(
      stage,
      style.block_size == 0 ? BlockMetadataType::kVariableLength : BlockMetadataType::kFixedLength,
      volume.capacity());
  const absl::Status status = ForEachBatch(*cursor, [&pipeline](const ExtentBatch& batch) {
    pipeline.Add(batch);
    return absl::OkStatus();
  });
  if (!status.ok()) std::abort();
  return pipeline.Finish();
}

// Calls use(offset, length) for each extent or block that a loop over the words finds.
template <typename Use>
void ListByLoop(const Volume& volume, uint64_t block_size, Use use) {
  if (block_size == kGranularity) {
    for (size_t i = 0; i < volume.words.size(); ++i) {
      for (uint64_t word = volume.words[i]; word != 0; word &= word - 1) {
        use((i * 64 + static_cast<uint64_t>(__builtin_ctzll(word))) * kGranularity, kGranularity);
      }
    }
    return;
  }
  if (block_size != 0) {
    static_assert(kStyles[2].block_size == 16 * kGranularity);
    for (size_t i = 0; i < volume.words.size(); ++i) {
      for (uint64_t word = volume.words[i]; word != 0;) {
        const uint64_t group = static_cast<uint64_t>(__builtin_ctzll(word)) / 16;
        use((i * 4 + group) * block_size, block_size);
        word &= ~(uint64_t{0xffff} << group * 16);
      }
    }
    return;
  }
  uint64_t begin = 0;
  uint64_t open = 0;
  for (size_t i = 0; i < volume.words.size(); ++i) {
    const uint64_t word = volume.words[i];
    for (uint64_t edges = word ^ (word << 1 | open); edges != 0; edges &= edges - 1) {
      const uint64_t at = (i * 64 + static_cast<uint64_t>(__builtin_ctzll(edges))) * kGranularity;
      if (open != 0) use(begin, at - begin);
      begin = at;
      open ^= 1;
    }
  }
  if (open != 0) use(begin, volume.capacity() - begin);
}

uint64_t RunLoop(const Volume& volume, const Style& style) {
  static std::vector<uint64_t> offsets(kTuples);
  static std::vector<uint64_t> lengths(kTuples);
  uint64_t tuples = 0;
  ListByLoop(volume, style.block_size, [&](uint64_t offset, uint64_t length) {
    offsets[tuples % kTuples] = offset;
    lengths[tuples % kTuples] = length;
    ++tuples;
  });
  benchmark::DoNotOptimize(offsets.data());
  return tuples;
}

uint64_t RunPeer(const Volume& volume, const Style& style) {
  csi::v1::GetMetadataDeltaResponse sent;
  csi::v1::GetMetadataDeltaResponse received;
  std::string bytes;
  uint64_t tuples = 0;
  int64_t end = 0;
  const auto deliver = [&] {
    sent.set_block_metadata_type(style.block_size == 0 ? csi::v1::VARIABLE_LENGTH
                                                       : csi::v1::FIXED_LENGTH);
    sent.set_volume_capacity_bytes(static_cast<int64_t>(volume.capacity()));
    if (!sent.SerializeToString(&bytes) || !received.ParseFromString(bytes)) std::abort();
    for (const auto& tuple : received.block_metadata()) {
      if (tuple.size_bytes() <= 0 || tuple.byte_offset() < end) std::abort();
      end = tuple.byte_offset() + tuple.size_bytes();
      if (end > received.volume_capacity_bytes()) std::abort();
    }
    sent.Clear();
  };
  ListByLoop(volume, style.block_size, [&](uint64_t offset, uint64_t length) {
    auto* const tuple = sent.add_block_metadata();
    tuple->set_byte_offset(static_cast<int64_t>(offset));
    tuple->set_size_bytes(static_cast<int64_t>(length));
    ++tuples;
    if (sent.block_metadata_size() == static_cast<int>(kTuples)) deliver();
  });
  if (sent.block_metadata_size() != 0) deliver();
  return tuples;
}

void Register(const Style& style, const Pattern& pattern, bool as_map) {
  const std::string name = std::string("pipeline/") + style.name + "/" +
                           (as_map ? "map" : pattern.name) + "/" + std::to_string(kBytes) + "/";
  const auto add = [&](const char* stage, auto run) {
    benchmark::RegisterBenchmark((name + stage).c_str(), [=](benchmark::State& state) {
      const Volume& volume = VolumeOf(pattern, as_map);
      uint64_t tuples = 0;
      for (auto _ : state) tuples += run(volume);
      state.SetItemsProcessed(static_cast<int64_t>(tuples));
    })->UseRealTime();
  };
  constexpr std::pair<const char*, Stage> kStages[] = {{"cursor", Stage::kCursor},
                                                       {"encode", Stage::kEncode},
                                                       {"digest", Stage::kDigest},
                                                       {"decode", Stage::kDecode},
                                                       {"cbt", Stage::kWhole}};
  for (const auto& [stage_name, stage] : kStages) {
    add(stage_name,
        [style, stage = stage](const Volume& volume) { return RunPipeline(volume, style, stage); });
  }
  add("ctz", [style](const Volume& volume) { return RunLoop(volume, style); });
  add("peer", [style](const Volume& volume) { return RunPeer(volume, style); });
}

const bool registered = [] {
  const Pattern clustered = {"clustered", 0, 64};
  const Pattern patterns[] = {
      {"random4e-2", 4e-2, 0}, {"random1e-3", 1e-3, 0}, clustered, {"full", 1, 0}};
  for (const Pattern& pattern : patterns) {
    for (const Style& style : kStyles) Register(style, pattern, false);
  }
  for (const Style& style : kStyles) Register(style, clustered, true);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
