#include "rpc/contract/source_version.h"

#include <openssl/evp.h>

#include <new>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/absl_view.h"

namespace cbt::rpc {

void AppendSized(std::string& out, std::string_view text) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(text.size() >> (8 * i)));
  out.append(text);
}

std::string SourceVersion(const std::optional<std::string>& base, std::string_view target,
                          std::string_view version) {
  std::string hashed = "cbt source version 1";
  hashed.push_back(base.has_value() ? 1 : 0);
  AppendSized(hashed, base.value_or(""));
  AppendSized(hashed, target);
  AppendSized(hashed, version);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  // Fails only when out of memory. A missing version must never be compared.
  if (EVP_Digest(hashed.data(), hashed.size(), digest, &length, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return {reinterpret_cast<const char*>(digest), kSourceVersionBytes};
}

std::string SourceVersionText(std::string_view bytes, bool of_place) {
  return absl::StrCat(of_place ? AbslView(kPlacePrefix) : "",
                      absl::BytesToHexString(AbslView(bytes)));
}

}  // namespace cbt::rpc
