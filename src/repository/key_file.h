// Files of keys: each holds the repository's keys, encrypted with a password.
#ifndef CBT_REPOSITORY_KEY_FILE_H_
#define CBT_REPOSITORY_KEY_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/secrets.h"
#include "repository/crypto.h"

namespace cbt::repository {

struct KeyFile {
  uint64_t n = 0;  // scrypt's cost
  uint64_t r = 0;
  uint64_t p = 0;
  std::string salt = {};
  std::string data = {};  // the sealed keys
};

// Errors: DATA_LOSS; UNIMPLEMENTED for another way to derive keys than scrypt.
absl::StatusOr<KeyFile> DecodeKeyFile(std::string_view json);

// The repository's keys. Takes tens of milliseconds and megabytes, as the file says.
// Errors: UNAUTHENTICATED for another password; DATA_LOSS; as CryptoKey::FromPassword().
absl::StatusOr<CryptoKey> OpenKeyFile(const KeyFile& file, const Secret& password);

// A file that opens `key` with `password`, with the costs that restic has.
absl::StatusOr<std::string> EncodeKeyFile(const CryptoKey& key, const Secret& password);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_KEY_FILE_H_
