// XML of any size as events, read with expat in bounded memory.
#ifndef CBT_SOURCE_LISTS_XML_RECORDS_H_
#define CBT_SOURCE_LISTS_XML_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/source/byte_stream.h"
#include "cbt/units.h"

namespace cbt {

// The attributes of an element; valid during the call.
class XmlAttributes {
 public:
  explicit XmlAttributes(const char* const* pairs) noexcept : pairs_(pairs) {}

  // The value of `name`; empty if missing.
  std::optional<std::string_view> Find(std::string_view name) const noexcept;

  // The decimal number in `name`, at most 2^64 - 1.
  // Errors: DATA_LOSS if it is missing or not a number.
  absl::StatusOr<uint64_t> Number(std::string_view name) const;

 private:
  const char* const* pairs_;  // name, value, ..., null
};

// Receives the elements of a document. `depth` is the number of enclosing elements. Any error ends
// the reading.
class XmlEvents {
 public:
  virtual ~XmlEvents() = default;
  XmlEvents() = default;
  XmlEvents(const XmlEvents&) = delete;
  XmlEvents& operator=(const XmlEvents&) = delete;

  virtual absl::Status Open(int depth, std::string_view name, const XmlAttributes& attributes) = 0;
  virtual absl::Status Close(int depth, std::string_view name) = 0;
};

// Maximum depth of elements, bytes of one tag, and bytes of memory for expat.
inline constexpr int kMaxXmlDepth = 32;
inline constexpr uint64_t kMaxXmlTagBytes = kMiB;
inline constexpr size_t kMaxXmlMemoryBytes = 16 * kMiB;

// Reads one document to the end of the stream. A document type is refused: no list has one, and
// entities can expand a small input into a huge one.
// Errors: DATA_LOSS with the line for invalid XML, an early end, and text between elements (blanks
//         and comments are allowed); those of `events`, prefixed with the line; those of the
//         stream. RESOURCE_EXHAUSTED with the line if the different names of attributes and
//         elements don't fit into kMaxXmlMemoryBytes, or if there is no memory. UNIMPLEMENTED when
//         built without expat.
absl::Status ReadXml(ByteStream& stream, XmlEvents& events);

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_XML_RECORDS_H_
