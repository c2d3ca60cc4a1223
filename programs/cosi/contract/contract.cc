#include "programs/cosi/contract/contract.h"

namespace cbt::cosi {

std::string_view RevisionName(Revision revision) noexcept {
  switch (revision) {
    case Revision::kProposal:
      return "proposal";
    case Revision::kV02:
      return "v0.2";
    case Revision::kV1alpha2:
      break;
  }
  return "v1alpha2";
}

const Contract& ContractOf(Revision revision) {
  switch (revision) {
    case Revision::kProposal:
      return ProposalContract();
    case Revision::kV02:
      return V02Contract();
    case Revision::kV1alpha2:
      break;
  }
  return V1alpha2Contract();
}

}  // namespace cbt::cosi
