// What a sequence of calls of the C interface has made so far, and the input that the next ones are
// drawn from.
#ifndef CBT_FUZZ_C_WORLD_H_
#define CBT_FUZZ_C_WORLD_H_

#include <stdlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cbt/c/cbt.h"
#include "fuzz/support/check.h"
#include "fuzz/support/input.h"

namespace cbt::fuzz {

// Handles of one type. Dead ones stay, to be used again.
template <typename T>
struct Pool {
  std::array<T*, 6> handles = {};

  T*& At(uint64_t choice) { return handles[choice % handles.size()]; }
};

struct World;

// What a callback does is drawn from the input too.
struct Source {
  World* world;
  uint64_t capacity;
};

struct World {
  explicit World(const uint8_t* data, size_t size) : input(data, size) {}
  ~World() {
    if (!folder.empty()) std::filesystem::remove_all(folder);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Input input;
  Pool<cbt_bytes> bytes;
  Pool<cbt_cursor> cursors;
  Pool<cbt_map> maps;
  Pool<cbt_map_builder> builders;
  Pool<cbt_checker> checkers;
  Pool<cbt_service> services;
  Pool<cbt_stream> streams;
  Pool<cbt_tracker> trackers;
  Pool<cbt_chain> chains;
  Pool<cbt_client> clients;
  std::vector<std::unique_ptr<Source>> sources;
  int owned = 0;
  int released = 0;
  std::filesystem::path folder;  // of the chains; empty until the first

  uint64_t Byte() { return input.Take(1); }
  // Mostly small, sometimes anything.
  uint64_t Number() {
    const uint64_t kind = Byte();
    if (kind < 200) return kind;
    return input.Take(kind < 240 ? 2 : 8);
  }
  cbt_geometry Geometry() { return {Number(), Number()}; }
  // Two chains, so that handles often have the same one.
  std::string Directory() {
    if (folder.empty()) {
      char pattern[] = "/tmp/cbt-fuzz-calls-XXXXXX";
      CBT_FUZZ_CHECK(mkdtemp(pattern) != nullptr);
      folder = pattern;
    }
    return folder / (Byte() % 2 == 0 ? "first" : "second");
  }
  const char* Snapshot() {
    static constexpr const char* kIds[] = {"a", "b", "c", "d", "e", "f", "", nullptr};
    return kIds[Byte() % std::size(kIds)];
  }
};

// Checks what every failing call promises.
inline cbt_code Checked(cbt_code code, cbt_error* error) {
  CBT_FUZZ_CHECK((code == CBT_OK) == (error == nullptr));
  if (error != nullptr) {
    CBT_FUZZ_CHECK(cbt_error_code(error) == code);
    CBT_FUZZ_CHECK(std::strlen(cbt_error_message_borrowed(error)) < 100'000);
    cbt_error_free(error);
  }
  return code;
}

}  // namespace cbt::fuzz

// The code that a call returned, which is written with `&error` as its last argument.
#define CALL(call)                          \
  [&] {                                     \
    cbt_error* error = nullptr;             \
    const cbt_code code = (call);           \
    return cbt::fuzz::Checked(code, error); \
  }()

#endif  // CBT_FUZZ_C_WORLD_H_
