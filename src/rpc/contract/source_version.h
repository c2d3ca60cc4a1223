// Which state of the data an answer is read from, as it travels ahead of a stream and inside of
// page tokens. docs/reference/completeness.md has it for others to implement.
#ifndef CBT_RPC_CONTRACT_SOURCE_VERSION_H_
#define CBT_RPC_CONTRACT_SOURCE_VERSION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cbt::rpc {

// Key of initial metadata; the value is 32 hexadecimal digits where we send it.
inline constexpr std::string_view kSourceVersionKey = "cbt-source-version";

// What is wrong with a version that is there twice. It can't be compared with a later one.
inline constexpr std::string_view kTwoVersions = "cbt-source-version is given more than once";

inline constexpr size_t kSourceVersionBytes = 16;

// A digest of what was asked for, by the storage's names, and of what its provider says of the
// data's state (MetadataSource::version, which may be empty). Nothing of either can be read from
// it; it is the same after a restart. Throws std::bad_alloc.
std::string SourceVersion(const std::optional<std::string>& base, std::string_view target,
                          std::string_view version);

// As it travels in metadata.
std::string SourceVersionText(std::string_view bytes);

// Length and text: what is written so after each other can't be read in two ways.
void AppendSized(std::string& out, std::string_view text);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_SOURCE_VERSION_H_
