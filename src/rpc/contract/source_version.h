// The version of the data that an answer is read from, as sent in initial metadata and in page
// tokens. docs/reference/completeness.md specifies it for other implementations.
#ifndef CBT_RPC_CONTRACT_SOURCE_VERSION_H_
#define CBT_RPC_CONTRACT_SOURCE_VERSION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cbt::rpc {

// Key of initial metadata. Our values are 32 hexadecimal digits, after kPlacePrefix if they say
// only where the data is (MetadataSource::may_change_unseen).
inline constexpr std::string_view kSourceVersionKey = "cbt-source-version";

inline constexpr std::string_view kPlacePrefix = "place:";

// Whether data of this version, as sent in metadata, may change while the version stays the same.
inline bool IsOfPlace(std::string_view version_text) noexcept {
  return version_text.starts_with(kPlacePrefix);
}

// The error for a version that is given twice: it can't be compared with a later one.
inline constexpr std::string_view kTwoVersions = "cbt-source-version is given more than once";

inline constexpr size_t kSourceVersionBytes = 16;

// A digest of the requested snapshots' handles and of the provider's version of the data
// (MetadataSource::version, may be empty). It reveals neither, and is the same after a restart.
// Throws std::bad_alloc.
std::string SourceVersion(const std::optional<std::string>& base, std::string_view target,
                          std::string_view version);

// As sent in metadata.
std::string SourceVersionText(std::string_view bytes, bool of_place);

// Appends the length and the text, so that a sequence of them is unambiguous.
void AppendSized(std::string& out, std::string_view text);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_SOURCE_VERSION_H_
