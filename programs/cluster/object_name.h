// Names of objects, as the API server accepts them.
#ifndef CBT_PROGRAMS_CLUSTER_OBJECT_NAME_H_
#define CBT_PROGRAMS_CLUSTER_OBJECT_NAME_H_

#include <string_view>

namespace cbt::kube::cluster {

// A DNS-1123 label: 1 to 63 lower-case letters, digits and dashes, with a letter or digit at each
// end. Names of namespaces.
constexpr bool IsNamespaceName(std::string_view text) noexcept {
  if (text.empty() || text.size() > 63) return false;
  for (const char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
  }
  return text.front() != '-' && text.back() != '-';
}

// A DNS-1123 subdomain: labels with dots between them, at most 253 characters. Names of most
// objects. (A label may be longer than 63 here, as the API server has it.)
constexpr bool IsObjectName(std::string_view text) noexcept {
  if (text.empty() || text.size() > 253) return false;
  char before = '.';
  for (const char c : text) {
    const bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!alnum && c != '-' && c != '.') return false;
    if (!alnum && before == '.') return false;    // a label begins
    if (c == '.' && before == '-') return false;  // a label ends
    before = c;
  }
  return before != '.' && before != '-';
}

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_OBJECT_NAME_H_
