// Untrusted bytes through the messages of COSI's three revisions, requests and answers: an error, or
// a value that stays the same when it is written and read again. The last byte chooses the revision
// and the message.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/support/check.h"
#include "programs/cosi/contract/contract.h"

namespace {

using namespace cbt::cosi;  // NOLINT(google-build-using-namespace)

MessageBytes BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// What is read is read alike from what is written.
template <typename Value>
void Check(MessageBytes bytes, const Contract& contract,
           absl::StatusOr<Value> (Contract::*read)(MessageBytes) const,
           std::string (Contract::*write)(const Value&) const) {
  const absl::StatusOr<Value> value = (contract.*read)(bytes);
  if (!value.ok()) {
    CBT_FUZZ_CHECK(absl::IsInvalidArgument(value.status()) ||
                   absl::IsUnimplemented(value.status()));
    return;
  }
  const std::string written = (contract.*write)(*value);
  const absl::StatusOr<Value> again = (contract.*read)(BytesOf(written));
  // A text that is a secret may be no UTF-8, and JSON can't hold it.
  if (!again.ok()) return;
  CBT_FUZZ_CHECK((contract.*write)(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const MessageBytes bytes(data, size - 1);
  const Contract& contract = ContractOf(kRevisions[data[size - 1] % kRevisions.size()]);
  switch (data[size - 1] / kRevisions.size() % 8) {
    case 0:
      Check(bytes, contract, &Contract::ReadCreate, &Contract::WriteCreate);
      break;
    case 1:
      Check(bytes, contract, &Contract::ReadFind, &Contract::WriteFind);
      break;
    case 2:
      Check(bytes, contract, &Contract::ReadDelete, &Contract::WriteDelete);
      break;
    case 3:
      Check(bytes, contract, &Contract::ReadGrant, &Contract::WriteGrant);
      break;
    case 4:
      Check(bytes, contract, &Contract::ReadRevoke, &Contract::WriteRevoke);
      break;
    case 5:
      Check(bytes, contract, &Contract::ReadInfo, &Contract::WriteInfo);
      break;
    case 6:
      Check(bytes, contract, &Contract::ReadBucket, &Contract::WriteBucket);
      break;
    default:
      Check(bytes, contract, &Contract::ReadAccess, &Contract::WriteAccess);
  }
  return 0;
}
