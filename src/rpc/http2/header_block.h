// Header fields of a request, of a response, or trailers.
#ifndef CBT_RPC_HTTP2_HEADER_BLOCK_H_
#define CBT_RPC_HTTP2_HEADER_BLOCK_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cbt::rpc::http2 {

struct Header {
  std::string_view name;  // lower case
  std::string_view value;
};

// Fields in order, and their bytes.
class HeaderBlock {
 public:
  // HTTP/2 counts this many bytes per field in addition to its text.
  static constexpr size_t kFieldBytes = 32;

  // Throws std::bad_alloc; nothing was added then.
  void Add(std::string_view name, std::string_view value) {
    // The field comes last: bytes without a field are never read.
    const size_t begin = text_.size();
    text_.append(name).append(value);
    fields_.push_back({name.size(), value.size(), begin});
  }

  size_t size() const noexcept { return fields_.size(); }
  bool empty() const noexcept { return fields_.empty(); }

  // Valid until the block changes.
  Header operator[](size_t index) const noexcept {
    const Field& field = fields_[index];
    const std::string_view text(text_);
    return {text.substr(field.begin, field.name),
            text.substr(field.begin + field.name, field.value)};
  }

  // The first value of `name`.
  std::optional<std::string_view> Find(std::string_view name) const noexcept {
    for (size_t i = 0; i < size(); ++i) {
      if ((*this)[i].name == name) return (*this)[i].value;
    }
    return std::nullopt;
  }

  // By HTTP/2's rule for SETTINGS_MAX_HEADER_LIST_SIZE.
  size_t bytes() const noexcept { return text_.size() + kFieldBytes * fields_.size(); }

  // Whether fields are missing because they exceeded the receiver's limit.
  bool cut() const noexcept { return cut_; }
  void set_cut() noexcept { cut_ = true; }

  void Clear() noexcept {
    // An idle connection must not keep a large block.
    std::string().swap(text_);
    std::vector<Field>().swap(fields_);
    cut_ = false;
  }

 private:
  struct Field {
    size_t name;
    size_t value;
    size_t begin;
  };
  std::string text_;
  std::vector<Field> fields_;
  bool cut_ = false;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_HEADER_BLOCK_H_
