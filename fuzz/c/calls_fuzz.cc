// Sequences of calls of the C interface, on handles that live, were freed or consumed, or are NULL,
// with callbacks that answer anything. Whatever the order: no call crashes, a failure has an error
// of the same code, and an answer that is complete covers the volume. Freed handles may be used
// because the library is built with CBT_C_CHECKED.
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

#include "cbt/c/cbt.h"
#include "fuzz/c/chains.h"
#include "fuzz/c/world.h"
#include "fuzz/support/check.h"

namespace {

using cbt::fuzz::Checked;
using cbt::fuzz::OfChains;
using cbt::fuzz::Source;
using cbt::fuzz::World;

constexpr size_t kMaxCalls = 400;

cbt_code Seek(void* user, uint64_t, cbt_error** error) {
  auto& source = *static_cast<Source*>(user);
  if (source.world->Byte() != 7) return CBT_OK;
  *error = cbt_error_new(CBT_UNAVAILABLE, "later", 5);
  return static_cast<cbt_code>(source.world->Byte());
}

cbt_code Next(void* user, uint64_t* offsets, uint64_t* lengths, uint64_t room, uint64_t* count,
              uint64_t* covered, cbt_error** error) {
  auto& source = *static_cast<Source*>(user);
  World& world = *source.world;
  uint64_t made = 0;
  uint64_t at = *covered;
  while (made < room && made < world.Byte() % 8 && at < source.capacity) {
    const uint64_t kind = world.Byte();
    offsets[made] = kind == 255 ? world.Number() : at + kind % 5;
    lengths[made] = kind == 254 ? world.Number() : 1;
    at = offsets[made] + lengths[made];
    ++made;
  }
  *count = made;
  const uint64_t how = world.Byte();
  *covered = how < 200 ? (made == 0 ? source.capacity : at) : world.Number();
  if (how == 255) *count = world.Number();
  if (how != 254) return CBT_OK;
  *error = cbt_error_new(static_cast<cbt_code>(world.Byte()), "broken", 6);
  return CBT_DATA_LOSS;
}

void CountRelease(void* user) { ++static_cast<World*>(user)->released; }

void MakeBytes(World& world) {
  cbt_bytes*& to = world.bytes.At(world.Byte());
  cbt_bytes_free(to);
  static const std::array<uint8_t, 64> kBits = {0x55, 0xff, 0x01, 0x80, 0, 0, 0xf0};
  const uint64_t size = world.Byte() % 65;
  switch (world.Byte() % 3) {
    case 0:
      CALL(cbt_bytes_copy(kBits.data(), size, &to, &error));
      break;
    case 1:
      CALL(cbt_bytes_borrowed(kBits.data(), size, &to, &error));
      break;
    default:
      if (CALL(cbt_bytes_own(kBits.data(), size, &world, CountRelease, &to, &error)) == CBT_OK) {
        ++world.owned;
      }
  }
}

void MakeCursor(World& world) {
  cbt_cursor*& to = world.cursors.At(world.Byte());
  cbt_cursor_free(to);
  const cbt_geometry geometry = world.Geometry();
  cbt_bitmap_layout layout = CBT_INIT(cbt_bitmap_layout);
  layout.first_bit = world.Byte() % 20;
  layout.most_significant_first = static_cast<int32_t>(world.Byte() % 2);
  layout.inverted = static_cast<int32_t>(world.Byte() % 2);
  layout.reversed_word_bytes = static_cast<uint32_t>(world.Byte() % 10);
  cbt_bytes* const first = world.bytes.At(world.Byte());
  cbt_bytes* const second = world.bytes.At(world.Byte());
  switch (world.Byte() % 7) {
    case 0:
      CALL(cbt_cursor_from_bitmap(first, &layout, &geometry, &to, &error));
      break;
    case 1: {
      const auto op = static_cast<int32_t>(world.Byte() % 5);
      CALL(cbt_cursor_from_bitmaps(first, second, op, &layout, &geometry, &to, &error));
      break;
    }
    case 2: {
      std::array<uint64_t, 4> offsets, lengths;
      for (size_t i = 0; i < 4; ++i) offsets[i] = world.Number(), lengths[i] = world.Number();
      CALL(cbt_cursor_from_extents(offsets.data(), lengths.data(), world.Byte() % 5, &geometry, &to,
                                   &error));
      break;
    }
    case 3:
      CALL(cbt_cursor_from_memory_delta(first, second, world.Number(), &to, &error));
      break;
    case 4:
      CALL(cbt_cursor_from_memory(first, world.Number(), &to, &error));
      break;
    case 5:
      CALL(cbt_cursor_from_map(world.maps.At(world.Byte()), &to, &error));
      break;
    default: {
      world.sources.push_back(std::make_unique<Source>(Source{&world, geometry.capacity}));
      cbt_cursor_callbacks callbacks = CBT_INIT(cbt_cursor_callbacks);
      callbacks.user = world.sources.back().get();
      callbacks.seek = Seek;
      callbacks.next = Next;
      CALL(cbt_cursor_from_callbacks(&callbacks, &geometry, &to, &error));
    }
  }
}

// Reads a part; what is returned follows the rules.
void ReadCursor(World& world) {
  cbt_cursor* const cursor = world.cursors.At(world.Byte());
  uint64_t offsets[8], lengths[8];
  for (uint64_t turns = world.Byte() % 16; turns > 0; --turns) {
    const uint64_t before = cbt_cursor_covered(cursor);
    const uint64_t capacity = cbt_cursor_geometry(cursor).capacity;
    cbt_batch batch;
    const cbt_code code =
        world.Byte() % 2 == 0
            ? CALL(cbt_cursor_next(cursor, &batch, &error))
            : CALL(cbt_cursor_read(cursor, offsets, lengths, world.Byte() % 9, &batch, &error));
    if (code != CBT_OK) {
      CBT_FUZZ_CHECK(batch.count == 0 && batch.complete == 0);
      return;
    }
    CBT_FUZZ_CHECK(batch.covered >= before);
    CBT_FUZZ_CHECK(batch.complete == 0 || batch.covered == capacity);
    uint64_t end = 0;
    for (uint64_t i = 0; i < batch.count; ++i) {
      CBT_FUZZ_CHECK(batch.lengths[i] > 0 && batch.offsets[i] >= end);
      CBT_FUZZ_CHECK(batch.offsets[i] < capacity);
      end = batch.offsets[i] + batch.lengths[i];
    }
    if (batch.complete != 0) return;
  }
}

void Transform(World& world) {
  cbt_cursor* const input = world.cursors.At(world.Byte());
  cbt_cursor* const other = world.cursors.At(world.Byte());
  cbt_cursor*& to = world.cursors.At(world.Byte());
  cbt_cursor* made = nullptr;
  const uint64_t n = world.Number();
  switch (world.Byte() % 8) {
    case 0:
      CALL(cbt_cursor_coalesce(input, n, &made, &error));
      break;
    case 1:
      CALL(cbt_cursor_split(input, n, &made, &error));
      break;
    case 2:
      CALL(cbt_cursor_align_outward(input, n, &made, &error));
      break;
    case 3:
      CALL(cbt_cursor_clip(input, n, world.Number(), &made, &error));
      break;
    case 4:
      CALL(cbt_cursor_to_blocks(input, n, &made, &error));
      break;
    case 5: {
      cbt_cursor* const both[] = {input, other};
      CALL(cbt_cursor_union(both, world.Byte() % 3, &made, &error));
      break;
    }
    case 6:
      CALL(cbt_cursor_intersect(input, other, &made, &error));
      break;
    default:
      CALL(cbt_cursor_subtract(input, other, &made, &error));
      break;
  }
  if (made != nullptr) {
    cbt_cursor_free(to);
    to = made;
  }
}

void OfCursors(World& world) {
  cbt_cursor* const cursor = world.cursors.At(world.Byte());
  switch (world.Byte() % 4) {
    case 0:
      CALL(cbt_cursor_seek(cursor, world.Number(), &error));
      break;
    case 1:
      CALL(cbt_cursor_set_batch(cursor, world.Number(), &error));
      break;
    case 2:
      cbt_cursor_free(cursor);
      break;
    default: {
      struct ArrowArrayStream stream;
      if (CALL(cbt_cursor_export_arrow(cursor, world.Byte() % 9, &stream, &error)) != CBT_OK)
        return;
      struct ArrowSchema schema;
      if (world.Byte() % 2 == 0 && stream.get_schema(&stream, &schema) == 0)
        schema.release(&schema);
      for (uint64_t turns = world.Byte() % 8; turns > 0; --turns) {
        struct ArrowArray array;
        if (stream.get_next(&stream, &array) != 0) {
          CBT_FUZZ_CHECK(stream.get_last_error(&stream) != nullptr);
        } else if (array.release != nullptr) {
          CBT_FUZZ_CHECK(array.length > 0);
          array.release(&array);
        } else {
          break;
        }
      }
      stream.release(&stream);
    }
  }
}

void OfMaps(World& world) {
  cbt_map* const a = world.maps.At(world.Byte());
  cbt_map* const b = world.maps.At(world.Byte());
  cbt_map*& to = world.maps.At(world.Byte());
  // Large maps take memory; their own fuzzers make them.
  const cbt_geometry geometry = {world.Number() % 65536, world.Number() % 300};
  cbt_map* made = nullptr;
  cbt_bytes* bytes = nullptr;
  switch (world.Byte() % 12) {
    case 0: {
      cbt_map_builder*& builder = world.builders.At(world.Byte());
      cbt_map_builder_free(builder);
      CALL(cbt_map_builder_new(&geometry, &builder, &error));
      break;
    }
    case 1: {
      const uint64_t offset = world.Number(), length = world.Number();
      CALL(cbt_map_builder_add(world.builders.At(world.Byte()), &offset, &length, 1, &error));
      break;
    }
    case 2:
      CALL(cbt_map_builder_build(world.builders.At(world.Byte()), &made, &error));
      break;
    case 3: {
      cbt_cursor* const cursor = world.cursors.At(world.Byte());
      if (cbt_cursor_geometry(cursor).capacity < 65536) {
        CALL(cbt_map_from_cursor(cursor, world.Byte(), &made, &error));
      }
      break;
    }
    case 4: {
      const cbt_map* const both[] = {a, b};
      CALL(cbt_map_union(both, world.Byte() % 3, &made, &error));
      break;
    }
    case 5:
      CALL(cbt_map_difference(a, b, &made, &error));
      break;
    case 6:
      CALL(cbt_map_symmetric_difference(a, b, &made, &error));
      break;
    case 7:
      CALL(cbt_map_with_geometry(a, &geometry, &made, &error));
      break;
    case 8:
      if (CALL(cbt_map_to_portable(a, world.Byte() % 2 == 0 ? 64 : 32, &bytes, &error)) == CBT_OK) {
        CALL(cbt_map_from_portable(bytes, 64, &geometry, &made, &error));
        cbt_bytes_free(bytes);
      }
      break;
    case 9:
      if (CALL(cbt_map_encode(a, &bytes, &error)) == CBT_OK) {
        const cbt_code code = CALL(
            cbt_map_decode(cbt_bytes_data_borrowed(bytes), cbt_bytes_size(bytes), &made, &error));
        CBT_FUZZ_CHECK(code == CBT_OK && cbt_map_equal(a, made) != 0);
        cbt_bytes_free(bytes);
      }
      break;
    case 10:
      cbt_map_free(a);
      break;
    default: {
      cbt_map_info info = CBT_INIT(cbt_map_info);
      CALL(cbt_map_get_info(a, &info, &error));
      CALL(cbt_map_set_identity(a, "volume", "base", nullptr, &error));
      CBT_FUZZ_CHECK(cbt_map_name_borrowed(a, static_cast<int32_t>(world.Byte())) != nullptr);
    }
  }
  if (made != nullptr) {
    cbt_map_free(to);
    to = made;
  }
}

cbt_code Open(void* user, const cbt_request* request, cbt_answer* answer, cbt_error** error) {
  auto& world = *static_cast<World*>(user);
  CBT_FUZZ_CHECK(cbt_request_target_borrowed(request, nullptr) != nullptr);
  cbt_cursor*& cursor = world.cursors.At(world.Byte());
  if (world.Byte() % 4 == 0) {
    CALL(cbt_answer_set_blocks(answer, world.Number(), &error));
  }
  return cbt_answer_set_cursor(answer, cursor, error);
}

void OfStreams(World& world) {
  cbt_service*& service = world.services.At(world.Byte());
  cbt_stream*& stream = world.streams.At(world.Byte());
  switch (world.Byte() % 5) {
    case 0: {
      cbt_provider provider = CBT_INIT(cbt_provider);
      provider.user = &world;
      provider.open = Open;
      cbt_service_options options = CBT_INIT(cbt_service_options);
      options.type = static_cast<int32_t>(world.Byte() % 4);
      options.alignment = world.Number();
      options.coalesce_gap = world.Number();
      options.max_extent = world.Number();
      cbt_service_free(service);
      CALL(cbt_service_new(&provider, &options, &service, &error));
      break;
    }
    case 1: {
      std::string request(
          "\x0a\x01"
          "a\x12\x01"
          "b",
          6);
      if (world.Byte() % 2 == 0) request += {'\x18', static_cast<char>(world.Byte() % 128)};
      if (world.Byte() % 2 == 0) request += {'\x20', static_cast<char>(world.Byte() % 128)};
      for (uint64_t more = world.Byte() % 4; more > 0; --more)
        request += static_cast<char>(world.Byte());
      cbt_stream_options options = CBT_INIT(cbt_stream_options);
      options.slice_us = world.Byte();
      cbt_stream_free(stream);
      CALL(cbt_stream_open(service, "/csi.v1.SnapshotMetadata/GetMetadataDelta", request.data(),
                           request.size(), &options, &stream, &error));
      break;
    }
    case 2: {
      cbt_checker*& checker = world.checkers.At(world.Byte());
      cbt_checker_free(checker);
      CALL(cbt_checker_new(nullptr, &checker, &error));
      cbt_message message;
      for (uint64_t turns = world.Byte() % 16; turns > 0; --turns) {
        if (CALL(cbt_stream_next(stream, &message, &error)) != CBT_OK) break;
        if (message.state == CBT_STREAM_MESSAGE) {
          cbt_bytes* kept = nullptr;
          CBT_FUZZ_CHECK(CALL(cbt_stream_keep(stream, &kept, &error)) == CBT_OK);
          cbt_tuples tuples;
          CALL(cbt_checker_message(checker, cbt_bytes_data_borrowed(kept), cbt_bytes_size(kept),
                                   &tuples, &error));
          cbt_bytes_free(kept);
        }
        const cbt_metadata* entries = nullptr;
        uint64_t count = 0;
        if (CALL(cbt_stream_metadata_borrowed(stream, CBT_TRAILING, &entries, &count, &error)) ==
            CBT_OK) {
          CALL(cbt_checker_finish(checker, entries, count, nullptr, &error));
        }
        if (message.state == CBT_STREAM_END) break;
      }
      break;
    }
    case 3:
      cbt_stream_cancel(stream);
      break;
    default:
      if (world.Byte() % 2 == 0) {
        cbt_stream_free(stream);
      } else {
        cbt_service_free(service);
      }
  }
}

void OfTrackers(World& world) {
  cbt_tracker*& tracker = world.trackers.At(world.Byte());
  cbt_map*& map = world.maps.At(world.Byte());
  cbt_map* made = nullptr;
  switch (world.Byte() % 7) {
    case 0: {
      cbt_tracker_options options = CBT_INIT(cbt_tracker_options);
      options.geometry = {world.Byte() + 1, world.Byte() % 16 + 1};
      options.region_bytes = options.geometry.granularity * 4;
      cbt_tracker_free(tracker);
      CALL(cbt_tracker_create(&options, &tracker, &error));
      break;
    }
    case 1: {
      cbt_write write;
      CALL(cbt_tracker_begin(tracker, world.Number(), world.Number(), &write, &error));
      cbt_write_end(&write);
      break;
    }
    case 2:
      CALL(cbt_tracker_open_epoch(tracker, "next", &error));
      break;
    case 3:
      CALL(cbt_tracker_close_epoch(tracker, &made, &error));
      break;
    case 4:
      CALL(cbt_tracker_acknowledge(tracker, map, &error));
      break;
    case 5:
      CALL(cbt_tracker_changes(tracker, &made, &error));
      break;
    default:
      cbt_tracker_free(tracker);
  }
  if (made != nullptr) {
    cbt_map_free(map);
    map = made;
  }
}

// Servers and clients that never get as far as a socket: those that do have tests of their own.
void OfRemotes(World& world) {
  cbt_client*& client = world.clients.At(world.Byte());
  switch (world.Byte() % 6) {
    case 0: {
      static constexpr const char* kAddresses[] = {nullptr, "",        "unix://",
                                                   "host",  "host:-1", "[::"};
      const cbt_metadata secrets[] = {{"key", "value"}, {"other", nullptr}};
      cbt_client_options options = CBT_INIT(cbt_client_options);
      // None of them can be connected to.
      options.address = kAddresses[world.Byte() % std::size(kAddresses)];
      options.snapshot = world.Byte() % 8 == 0 ? nullptr : "target";
      options.base = world.Byte() % 2 == 0 ? nullptr : "base";
      options.contract = static_cast<int32_t>(world.Byte() % 5);
      options.no_message = static_cast<int32_t>(world.Byte() % 4);
      options.secrets = world.Byte() % 4 == 0 ? nullptr : secrets;
      options.secret_count = world.Byte() % 3;
      options.starting_offset = world.Number();
      options.max_results = static_cast<uint32_t>(world.Number());
      options.timeout_ms = world.Number();
      options.stall_ms = world.Number();
      options.retry_ms = world.Number();
      options.user = &world;
      options.release = CountRelease;
      if (world.Byte() % 16 == 0) options.struct_size = world.Number() % sizeof(options);
      cbt_client_free(client);
      if (CALL(cbt_client_new(&options, &client, &error)) == CBT_OK &&
          options.struct_size == sizeof(options)) {
        ++world.owned;
      }
      break;
    }
    case 1: {
      cbt_cursor* cursor = nullptr;
      CBT_FUZZ_CHECK(CALL(cbt_client_open(client, &cursor, &error)) != CBT_OK);
      CBT_FUZZ_CHECK(cursor == nullptr);
      break;
    }
    case 2: {
      cbt_client_info info = CBT_INIT(cbt_client_info);
      int32_t proof = 0;
      CBT_FUZZ_CHECK(CALL(cbt_client_get_info(client, &info, &error)) != CBT_OK);
      CBT_FUZZ_CHECK(CALL(cbt_client_proof(client, &proof, &error)) != CBT_OK);
      CBT_FUZZ_CHECK(*cbt_client_version_borrowed(client) == 0);
      break;
    }
    case 3:
      cbt_client_cancel(client);
      break;
    case 4:
      cbt_client_free(client);
      break;
    default: {
      cbt_server_options options = CBT_INIT(cbt_server_options);
      cbt_relay_options relay = CBT_INIT(cbt_relay_options);
      options.listen = world.Byte() % 2 == 0 ? nullptr : "nowhere";
      options.threads = 1;
      options.log_level = static_cast<int32_t>(world.Byte() % 6);
      options.stall_ms = world.Number();
      relay.plugin = world.Byte() % 2 == 0 ? nullptr : "unix:///none";
      relay.contract = static_cast<int32_t>(world.Byte() % 5);
      relay.plugin_stall_ms = world.Number();
      cbt_server* server = nullptr;
      cbt_service* const service = world.services.At(world.Byte());
      CBT_FUZZ_CHECK(CALL(cbt_server_start(service, &options, &server, &error)) != CBT_OK);
      CBT_FUZZ_CHECK(CALL(cbt_relay_start(&relay, &options, &server, &error)) != CBT_OK);
      CBT_FUZZ_CHECK(server == nullptr);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World world(data, size);
  for (size_t calls = 0; calls < kMaxCalls && !world.input.empty(); ++calls) {
    switch (world.Byte() % 10) {
      case 0:
        MakeBytes(world);
        break;
      case 1:
        MakeCursor(world);
        break;
      case 2:
        ReadCursor(world);
        break;
      case 3:
        Transform(world);
        break;
      case 4:
        OfCursors(world);
        break;
      case 5:
        OfMaps(world);
        break;
      case 6:
        OfStreams(world);
        break;
      case 7:
        OfTrackers(world);
        break;
      case 8:
        OfRemotes(world);
        break;
      default:
        OfChains(world);
    }
  }
  for (cbt_client* each : world.clients.handles) cbt_client_free(each);
  for (cbt_stream* each : world.streams.handles) cbt_stream_free(each);
  for (cbt_service* each : world.services.handles) cbt_service_free(each);
  for (cbt_checker* each : world.checkers.handles) cbt_checker_free(each);
  for (cbt_tracker* each : world.trackers.handles) cbt_tracker_free(each);
  for (cbt_chain* each : world.chains.handles) cbt_chain_free(each);
  for (cbt_cursor* each : world.cursors.handles) cbt_cursor_free(each);
  for (cbt_map_builder* each : world.builders.handles) cbt_map_builder_free(each);
  for (cbt_map* each : world.maps.handles) cbt_map_free(each);
  for (cbt_bytes* each : world.bytes.handles) cbt_bytes_free(each);
  CBT_FUZZ_CHECK(world.released == world.owned);
  return 0;
}
