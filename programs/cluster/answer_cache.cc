#include "programs/cluster/answer_cache.h"

#include <openssl/evp.h>

#include <memory>
#include <new>

namespace cbt::kube::cluster {

QuestionKey KeyOf(std::span<const std::string_view> parts) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     &EVP_MD_CTX_free);
  bool good = hash != nullptr && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    good = good && EVP_DigestUpdate(hash.get(), &size, sizeof size) == 1 &&
           EVP_DigestUpdate(hash.get(), part.data(), part.size()) == 1;
  }
  QuestionKey key = {};
  good = good && EVP_DigestFinal_ex(hash.get(), key.data(), nullptr) == 1;
  if (!good) throw std::bad_alloc();
  return key;
}

}  // namespace cbt::kube::cluster
