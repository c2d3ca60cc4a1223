#include "cbt/c/wire.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "c/border.h"
#include "cbt/extent.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/metadata.h"
#include "rpc/contract/status.h"

struct cbt_checker : cbt::c::Exclusive {
  explicit cbt_checker(const cbt_checker_options& chosen)
      : Exclusive(&kKind<cbt_checker>),
        options(chosen),
        rules(chosen.starting_offset, chosen.max_results) {}

  const cbt_checker_options options;
  cbt::StreamChecker rules;
  cbt::StreamDigest digest;
  cbt::MetadataMessage message;
  std::optional<cbt::rpc::StreamHeader> header;  // from the first message on
  bool finished = false;
  absl::Status failure;
};

namespace cbt::c {
namespace {

// The larger of all values: one pass without branches.
uint64_t AllBits(const uint64_t* values, uint64_t count) {
  uint64_t bits = 0;
  for (uint64_t i = 0; i < count; ++i) bits |= values[i];
  return bits;
}

absl::Status CheckMessage(cbt_checker& checker, std::span<const uint8_t> bytes) {
  if (absl::Status status = DecodeMetadataMessage(bytes, checker.message); !status.ok()) {
    return absl::DataLossError(
        absl::StrCat("message ", checker.rules.messages(), ": ", status.message()));
  }
  if (absl::Status status = checker.rules.Check(checker.message); !status.ok()) return status;
  checker.header = {.type = checker.message.type, .capacity = checker.message.capacity};
  checker.digest.Add(checker.message.tuples.offsets(), checker.message.tuples.lengths());
  return absl::OkStatus();
}

absl::StatusOr<int32_t> Verdict(const cbt_checker& checker, const rpc::Metadata& trailing) {
  if (!checker.header.has_value()) {
    return absl::DataLossError("the stream ended without a message");
  }
  std::string what;
  const auto lookup = [&](std::string_view key) { return rpc::FindOnly(trailing, key); };
  switch (rpc::CheckProof(lookup, checker.digest, checker.options.starting_offset, checker.header,
                          what)) {
    case rpc::ProofVerdict::kAbsent:
      if (checker.options.require_proof != 0) {
        return absl::DataLossError("the server sent no proof that the stream is complete");
      }
      return CBT_PROOF_ABSENT;
    case rpc::ProofVerdict::kHolds:
      return CBT_PROOF_HOLDS;
    case rpc::ProofVerdict::kHoldsForPlace:
      return CBT_PROOF_HOLDS_FOR_PLACE;
    case rpc::ProofVerdict::kHoldsFromRelay:
      return CBT_PROOF_HOLDS_FROM_RELAY;
    case rpc::ProofVerdict::kDiffers:
      break;
  }
  return absl::DataLossError(absl::StrCat("the stream is not what the server sent: ", what));
}

}  // namespace
}  // namespace cbt::c

cbt_code cbt_encode_header(int32_t type, uint64_t capacity, uint8_t* out, uint64_t* written,
                           cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (out == nullptr || written == nullptr) return cbt::c::IsNull("out and written");
    *written = 0;
    if (type != CBT_FIXED_LENGTH && type != CBT_VARIABLE_LENGTH) {
      return absl::InvalidArgumentError("type: expected CBT_FIXED_LENGTH or CBT_VARIABLE_LENGTH");
    }
    if (capacity > cbt::kMaxCapacity) {
      return absl::InvalidArgumentError("capacity: expected at most 2^63 - 1");
    }
    *written = cbt::EncodeHeader(static_cast<cbt::BlockMetadataType>(type), capacity, out);
    return absl::OkStatus();
  });
}

cbt_code cbt_encode_tuples(const uint64_t* offsets, const uint64_t* lengths, uint64_t count,
                           uint8_t* out, uint64_t room, uint64_t* tuples, uint64_t* written,
                           cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (tuples == nullptr || written == nullptr) return cbt::c::IsNull("tuples and written");
    *tuples = 0;
    *written = 0;
    if (count != 0 && (offsets == nullptr || lengths == nullptr)) {
      return cbt::c::IsNull("offsets and lengths");
    }
    if (out == nullptr && room != 0) return cbt::c::IsNull("out");
    // A tuple has at least two bytes: more can't be written, and need not be looked at.
    const uint64_t most = std::min(count, room / 2);
    if ((cbt::c::AllBits(offsets, most) | cbt::c::AllBits(lengths, most)) > cbt::kMaxCapacity) {
      return absl::InvalidArgumentError("offsets and lengths: expected at most 2^63 - 1");
    }
    const auto size = static_cast<size_t>(most);
    const cbt::EncodedTuples done =
        cbt::EncodeTuples({offsets, size}, {lengths, size}, {out, static_cast<size_t>(room)});
    *tuples = done.tuples;
    *written = done.bytes;
    return absl::OkStatus();
  });
}

cbt_code cbt_checker_new(const cbt_checker_options* options, cbt_checker** checker,
                         cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (checker == nullptr) return cbt::c::IsNull("checker");
    *checker = nullptr;
    cbt_checker_options copy;
    if (absl::Status status = cbt::c::ReadOptions(options, "options", copy); !status.ok()) {
      return status;
    }
    *checker = new cbt_checker(copy);
    return absl::OkStatus();
  });
}

cbt_code cbt_checker_message(cbt_checker* checker, const void* message, uint64_t size,
                             cbt_tuples* tuples, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (tuples == nullptr) return cbt::c::IsNull("tuples");
    *tuples = cbt_tuples{};
    if (absl::Status status = cbt::c::Check(checker, "checker"); !status.ok()) return status;
    if (message == nullptr && size != 0) return cbt::c::IsNull("message");
    const cbt::c::Exclusive::Use use(*checker);
    if (!use) return cbt::c::IsBusy("checker");
    if (!checker->failure.ok()) return checker->failure;
    if (checker->finished) {
      return absl::FailedPreconditionError("checker: the stream was finished");
    }
    // In case something throws: the rules may have seen the message, and the digest not.
    checker->failure = cbt::rpc::OutOfMemory();
    checker->failure = cbt::c::CheckMessage(
        *checker, {static_cast<const uint8_t*>(message), static_cast<size_t>(size)});
    if (!checker->failure.ok()) return checker->failure;
    const cbt::MetadataMessage& decoded = checker->message;
    tuples->offsets = decoded.tuples.offsets().data();
    tuples->lengths = decoded.tuples.lengths().data();
    tuples->count = decoded.tuples.size();
    tuples->capacity = decoded.capacity;
    tuples->type = static_cast<int32_t>(decoded.type);
    return absl::OkStatus();
  });
}

cbt_code cbt_checker_finish(cbt_checker* checker, const cbt_metadata* trailing, uint64_t count,
                            int32_t* proof, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (proof != nullptr) *proof = CBT_PROOF_ABSENT;
    if (absl::Status status = cbt::c::Check(checker, "checker"); !status.ok()) return status;
    if (trailing == nullptr && count != 0) return cbt::c::IsNull("trailing");
    const cbt::c::Exclusive::Use use(*checker);
    if (!use) return cbt::c::IsBusy("checker");
    if (!checker->failure.ok()) return checker->failure;
    cbt::rpc::Metadata entries;
    for (uint64_t i = 0; i < count; ++i) {
      entries.emplace_back(cbt::c::Text(trailing[i].key), cbt::c::Text(trailing[i].value));
    }
    checker->finished = true;
    absl::StatusOr<int32_t> verdict = cbt::c::Verdict(*checker, entries);
    if (!verdict.ok()) {
      checker->failure = verdict.status();
      return verdict.status();
    }
    if (proof != nullptr) *proof = *verdict;
    return absl::OkStatus();
  });
}

uint64_t cbt_checker_resume_offset(const cbt_checker* checker) noexcept {
  return cbt::c::Usable(checker) ? checker->rules.resume_offset() : 0;
}

uint64_t cbt_checker_tuples(const cbt_checker* checker) noexcept {
  return cbt::c::Usable(checker) ? checker->rules.tuples() : 0;
}

uint64_t cbt_checker_reported_bytes(const cbt_checker* checker) noexcept {
  return cbt::c::Usable(checker) ? checker->rules.bytes() : 0;
}

void cbt_checker_free(cbt_checker* checker) noexcept { cbt::c::Free(checker); }
