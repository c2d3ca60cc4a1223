// encode/<pattern>/<tuples>/<impl>: tuples to the bytes of a message.
// decode/<pattern>/<tuples>/<impl>: the bytes of a message to tuples, and the rules of a stream
// checked on them.
//
//   cbt           EncodeTuples(); DecodeMetadataMessage() and StreamChecker
//   sse42, ...    each kernel that runs here
//   libprotobuf   a reused message object: built and serialised; parsed and read
//   memcpy        copies the bytes
//   positions     finds where each tuple begins, which depends on the one before it
//
// Items are tuples.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cbt/extent.h"
#include "cbt/units.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/message.h"
#include "csi.pb.h"
#include "simd/kernels.h"

namespace cbt::bench {
namespace {

constexpr size_t kTuples = 8192;

// One message of a stream.
struct Message {
  BlockMetadataType type;
  uint64_t capacity;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
  std::vector<uint8_t> bytes;
};

// Ascending extents of up to `blocks` blocks of `block_size` over the middle of a volume.
std::shared_ptr<const Message> Make(BlockMetadataType type, uint64_t capacity, uint64_t block_size,
                                    uint64_t blocks) {
  std::mt19937_64 random(1);
  auto message = std::make_shared<Message>();
  message->type = type;
  message->capacity = capacity;
  const uint64_t stride = capacity / 2 / kTuples / block_size;
  for (uint64_t i = 0; i < kTuples; ++i) {
    const uint64_t length = 1 + random() % blocks;
    const uint64_t at = i * stride + random() % (stride - blocks);
    message->offsets.push_back(capacity / 4 / block_size * block_size + at * block_size);
    message->lengths.push_back(length * block_size);
  }
  message->bytes.resize(kMaxHeaderBytes + kTuples * kMaxTupleBytes);
  const size_t header = EncodeHeader(type, capacity, message->bytes.data());
  const EncodedTuples encoded =
      EncodeTuples(message->offsets, message->lengths, std::span(message->bytes).subspan(header));
  message->bytes.resize(header + encoded.bytes);
  return message;
}

void Add(const std::string& name, size_t bytes, std::function<void()> job) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    for (auto _ : state) job();
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kTuples));
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
  })->UseRealTime();
}

void Register(const std::string& pattern, const std::shared_ptr<const Message>& message) {
  const size_t bytes = message->bytes.size();
  const std::string encode = "encode/" + pattern + "/" + std::to_string(kTuples) + "/";
  const std::string decode = "decode/" + pattern + "/" + std::to_string(kTuples) + "/";
  const auto out =
      std::make_shared<std::vector<uint8_t>>(kMaxHeaderBytes + kTuples * kMaxTupleBytes);
  const auto keep = [](void* memory) {
    benchmark::DoNotOptimize(memory);
    benchmark::ClobberMemory();
  };

  Add(encode + "cbt", bytes, [=] {
    const size_t header = EncodeHeader(message->type, message->capacity, out->data());
    EncodeTuples(message->offsets, message->lengths, std::span(*out).subspan(header));
    keep(out->data());
  });
  for (const auto& variant : simd::EncodeTuplesVariants()) {
    if (!simd::IsRunnable(variant.level)) continue;
    Add(encode + SimdLevelName(variant.level), bytes, [=, kernel = variant.kernels->encode] {
      kernel(message->offsets.data(), message->lengths.data(), kTuples, out->data(), out->size());
      keep(out->data());
    });
  }
  Add(encode + "libprotobuf", bytes,
      [=, response = std::make_shared<csi::v1::GetMetadataDeltaResponse>()] {
        response->Clear();
        response->set_block_metadata_type(static_cast<csi::v1::BlockMetadataType>(message->type));
        response->set_volume_capacity_bytes(static_cast<int64_t>(message->capacity));
        for (size_t i = 0; i < kTuples; ++i) {
          auto* const tuple = response->add_block_metadata();
          tuple->set_byte_offset(static_cast<int64_t>(message->offsets[i]));
          tuple->set_size_bytes(static_cast<int64_t>(message->lengths[i]));
        }
        response->SerializeToArray(out->data(), static_cast<int>(out->size()));
        keep(out->data());
      });
  const auto copy = [=] {
    std::memcpy(out->data(), message->bytes.data(), bytes);
    keep(out->data());
  };
  Add(encode + "memcpy", bytes, copy);

  Add(decode + "cbt", bytes, [=, decoded = std::make_shared<MetadataMessage>()] {
    StreamChecker checker(0);
    const bool sound =
        DecodeMetadataMessage(message->bytes, *decoded).ok() && checker.Check(*decoded).ok();
    if (!sound || checker.tuples() != kTuples) std::abort();
    keep(decoded.get());
  });
  const auto tuples = std::make_shared<TupleList>();
  tuples->resize(kTuples);
  const size_t header =
      EncodeHeader(message->type, message->capacity, std::vector<uint8_t>(kMaxHeaderBytes).data());
  for (const auto& variant : simd::DecodeTuplesVariants()) {
    if (!simd::IsRunnable(variant.level)) continue;
    const simd::CheckTuplesKernels* check = nullptr;
    for (const auto& other : simd::CheckTuplesVariants()) {
      if (other.level <= variant.level) check = other.kernels;
    }
    Add(decode + SimdLevelName(variant.level), bytes,
        [=, kernel = variant.kernels->decode, check = check->check] {
          uint64_t* const offsets = tuples->mutable_offsets().data();
          uint64_t* const lengths = tuples->mutable_lengths().data();
          kernel(message->bytes.data() + header, bytes - header, offsets, lengths, kTuples);
          const simd::TupleCheck found =
              check(offsets, lengths, kTuples, {0, message->capacity, message->capacity, 0});
          if (!found.sound) std::abort();
          keep(offsets);
        });
  }
  Add(decode + "libprotobuf", bytes,
      [=, response = std::make_shared<csi::v1::GetMetadataDeltaResponse>()] {
        if (!response->ParseFromArray(message->bytes.data(), static_cast<int>(bytes))) std::abort();
        // A client reads what it parses: the same rules, checked in the obvious way.
        int64_t end = 0;
        for (const auto& tuple : response->block_metadata()) {
          if (tuple.size_bytes() <= 0 || tuple.byte_offset() < end) std::abort();
          end = tuple.byte_offset() + tuple.size_bytes();
          if (end > response->volume_capacity_bytes()) std::abort();
        }
        keep(response.get());
      });
  Add(decode + "memcpy", bytes, copy);
  Add(decode + "positions", bytes, [=] {
    const uint8_t* at = message->bytes.data() + header;
    const uint8_t* const end = message->bytes.data() + bytes;
    // The tag and the length byte are added outside the chain, as the kernels do.
    for (; end - at >= 512; at += 16) {
      for (int k = 0; k < 8; ++k) at += at[2 * k + 1];
    }
    while (at < end) at += 2 + at[1];
    if (at != end) std::abort();
    benchmark::DoNotOptimize(at);
  });
}

const bool registered = [] {
  constexpr auto kFixed = BlockMetadataType::kFixedLength;
  constexpr auto kVariable = BlockMetadataType::kVariableLength;
  Register("extents", Make(kVariable, 64 * kTiB, 4096, 1000));
  Register("blocks", Make(kFixed, 64 * kTiB, 65536, 1));
  Register("small", Make(kVariable, kGiB, 4096, 4));
  return true;
}();

}  // namespace
}  // namespace cbt::bench
