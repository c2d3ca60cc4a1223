// JSON of any size as events, read with RapidJSON in bounded memory.
#ifndef CBT_SOURCE_LISTS_JSON_RECORDS_H_
#define CBT_SOURCE_LISTS_JSON_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/source/byte_stream.h"

namespace cbt {

// What stands for a key, or in an array, when it is no object and no array.
struct JsonScalar {
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kOther };
  Kind kind = Kind::kNull;
  bool boolean = false;
  uint64_t number = 0;  // kNumber: an integer from 0 to 2^64 - 1; every other number is kOther
  std::string_view string = {};  // valid during the call

  // The number, or the number that the string spells in decimal digits.
  std::optional<uint64_t> AsNumber() const noexcept;
  // The boolean, or the one that the string spells.
  std::optional<bool> AsBool() const noexcept;
};

// Puts the number that the member `key` has into `out`, which has none yet: a member that comes
// twice has no meaning that is safe. `spelt`: digits in a string will do. Errors: DATA_LOSS.
absl::Status TakeNumber(std::string_view key, const JsonScalar& value, std::optional<uint64_t>& out,
                        bool spelt = false);

// Receives what is in the documents of a stream. `depth` is the number of objects and arrays around
// it; `key` that of the nearest member, empty in an array. Every error ends the reading.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  JsonEvents() = default;
  JsonEvents(const JsonEvents&) = delete;
  JsonEvents& operator=(const JsonEvents&) = delete;

  virtual absl::Status Open(int depth, std::string_view key, bool array) = 0;
  virtual absl::Status Close(int depth, bool array) = 0;
  virtual absl::Status Value(int depth, std::string_view key, const JsonScalar& value) = 0;
};

// Objects that stand behind each other or in one array: answers of a service that pages.
// `depth` below is 1 for what is a member of a page, 2 for what is in a member, and so on.
class JsonPages : public JsonEvents {
 protected:
  virtual absl::Status OnPage() = 0;
  virtual absl::Status OnPageEnd() = 0;
  virtual absl::Status OnOpen(int depth, std::string_view key, bool array) = 0;
  virtual absl::Status OnClose(int depth, bool array) = 0;
  virtual absl::Status OnValue(int depth, std::string_view key, const JsonScalar& value) = 0;

 private:
  absl::Status Open(int depth, std::string_view key, bool array) final;
  absl::Status Close(int depth, bool array) final;
  absl::Status Value(int depth, std::string_view key, const JsonScalar& value) final;

  int around_ = 0;  // 1 when the pages stand in an array
};

// Depth of objects and arrays, and bytes of one value with the white space around it, at most.
inline constexpr int kMaxJsonDepth = 32;
inline constexpr uint64_t kMaxJsonValueBytes = uint64_t{1} << 20;

// Reads documents behind each other to the end of the stream; at least one.
// Errors: DATA_LOSS with the byte offset for what is no JSON or ends early, those of `events` with
//         the offset in front, those of the stream. UNIMPLEMENTED when built without RapidJSON.
absl::Status ReadJson(ByteStream& stream, JsonEvents& events);

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_JSON_RECORDS_H_
