// JSON of any size as events, read with RapidJSON in bounded memory.
#ifndef CBT_SOURCE_LISTS_JSON_RECORDS_H_
#define CBT_SOURCE_LISTS_JSON_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/source/byte_stream.h"
#include "cbt/units.h"

namespace cbt {

// A member or array element that is neither an object nor an array.
struct JsonScalar {
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kOther };
  Kind kind = Kind::kNull;
  bool boolean = false;
  uint64_t number = 0;  // kNumber: an integer from 0 to 2^64 - 1; every other number is kOther
  std::string_view string = {};  // valid during the call

  // The number, or the number in decimal digits in the string.
  std::optional<uint64_t> AsNumber() const noexcept;
  // The boolean, or the one in the string.
  std::optional<bool> AsBool() const noexcept;
};

// Stores the number of the member `key` in `out`, which must be empty: a member given twice has no
// safe meaning. `spelt`: accepts digits in a string. Errors: DATA_LOSS.
absl::Status TakeNumber(std::string_view key, const JsonScalar& value, std::optional<uint64_t>& out,
                        bool spelt = false);

// Receives the contents of the documents of a stream. `depth` is the number of enclosing objects
// and arrays; `key` that of the nearest member, empty in an array. Any error ends the reading.
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

// Concatenated objects, or objects in one array: the pages of a service. `depth` below is 1 for a
// member of a page, 2 inside a member, and so on.
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

  int around_ = 0;  // 1 if the pages are in an array
};

// Maximum depth of objects and arrays, and bytes of one value with the white space around it.
inline constexpr int kMaxJsonDepth = 32;
inline constexpr uint64_t kMaxJsonValueBytes = kMiB;

// Reads concatenated documents to the end of the stream; at least one.
// Errors: DATA_LOSS with the byte offset for invalid JSON or an early end, those of `events`
//         prefixed with the offset, those of the stream. UNIMPLEMENTED when built without
//         RapidJSON.
absl::Status ReadJson(ByteStream& stream, JsonEvents& events);

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_JSON_RECORDS_H_
