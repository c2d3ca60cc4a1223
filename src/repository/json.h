// RapidJSON for this room, and what its decoders share.
#ifndef CBT_REPOSITORY_JSON_H_
#define CBT_REPOSITORY_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// What is no object or no text is an error of the decoder's, not an assertion.
#ifndef RAPIDJSON_ASSERT
#define RAPIDJSON_ASSERT(condition) ((void)0)
#endif
#include "rapidjson/document.h"
#include "rapidjson/reader.h"

namespace cbt::repository {

// Parses an object in place: its texts stay in `text`, which the caller may wipe and must keep. The
// parser needs no stack; the memory is about 16 times that of `text` at worst.
// Errors: DATA_LOSS for anything else.
absl::Status ParseObject(std::string& text, rapidjson::Document& object);

// Members of an object; empty if missing or of another type.
std::string_view TextOf(const rapidjson::Value& object, const char* name);
std::optional<uint64_t> NumberOf(const rapidjson::Value& object, const char* name);
bool BoolOf(const rapidjson::Value& object, const char* name);
std::vector<std::string> TextsOf(const rapidjson::Value& object, const char* name);

std::string ToBase64(std::string_view bytes);
// Decodes `text` into `bytes`, which never grows behind the caller's back, so that it can be wiped.
// False for anything but padded base64.
bool FromBase64(std::string_view text, std::string& bytes);

// A stream of events that differ by how deep they are. Decoders of large files derive from
// it: they keep what they need, and no tree of the rest.
template <typename Derived>
struct JsonEvents : rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Derived> {
  // Ends the parsing with an error beyond this depth.
  static constexpr int kMaxDepth = 64;

  bool StartObject() { return Enter() && derived().Started(true); }
  bool EndObject(rapidjson::SizeType) {
    const bool good = derived().Ended(true);
    --depth;
    return good;
  }
  bool StartArray() { return Enter() && derived().Started(false); }
  bool EndArray(rapidjson::SizeType) {
    const bool good = derived().Ended(false);
    --depth;
    return good;
  }
  bool Key(const char* text, rapidjson::SizeType size, bool) {
    return derived().KeyIs({text, size});
  }
  bool String(const char* text, rapidjson::SizeType size, bool) {
    return derived().TextIs({text, size});
  }
  bool Uint(unsigned value) { return derived().NumberIs(value); }
  bool Uint64(uint64_t value) { return derived().NumberIs(value); }
  // Null, booleans, negative and fractional numbers.
  bool Default() { return true; }

  int depth = 0;  // of the innermost object or array; 1 is the outermost

 private:
  Derived& derived() { return static_cast<Derived&>(*this); }
  bool Enter() { return ++depth <= kMaxDepth; }
};

// Sends the events of `text` to `events`, without recursion. False if it is no JSON, or at the
// first event that returns false.
template <typename Events>
bool ReadEvents(std::string_view text, Events& events) {
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>> reader;
  return !reader.Parse<rapidjson::kParseIterativeFlag>(stream, events).IsError();
}

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_JSON_H_
