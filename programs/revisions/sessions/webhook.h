// Who may ask for a session: the validating webhook.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_WEBHOOK_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_WEBHOOK_H_

#include <chrono>
#include <cstddef>
#include <memory>

#include "base/fair_limit.h"
#include "base/fair_places.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "programs/cluster/access_reviewer.h"
#include "programs/revisions/http_server/http_message.h"
#include "programs/revisions/sessions/admission_review.h"
#include "programs/revisions/sessions/counters.h"

namespace cbt::kube::sessions {

// The creator of a SnapshotSessionRequest must have the right to get every VolumeSnapshot of its
// namespace: the API server is asked, for the user that the AdmissionReview names. Every other
// operation or resource is refused: the webhook is not registered for them. Whatever keeps the
// API server from answering is a refusal with 503.
//
// Nothing proves that a review comes from the API server, and each costs a question: addresses
// share a number of them at once and a second; beyond it, 429. Thread safe.
class Webhook {
 public:
  static constexpr char kPath[] = "/validate-snapshotsessionrequests";
  // Reviews at once, a second, and at once after a pause.
  static constexpr size_t kPlaces = 64;
  static constexpr double kRate = 50;
  static constexpr int kBurst = 100;

  // All must live until the end of the client and of the HTTP server.
  Webhook(Client& client, std::chrono::milliseconds api_timeout, Counters& counters,
          ops::EventLog& log)
      : reviewer_(client, api_timeout, log), counters_(counters), log_(log) {}

  // Answers a request of HTTP.
  void Handle(const http_server::Request& request, const http_server::Respond& respond);

 private:
  void AskForAccess(const AdmissionRequest& review, FairPlaces::Place place,
                    const http_server::Respond& respond);

  cluster::AccessReviewer reviewer_;
  Counters& counters_;
  ops::EventLog& log_;
  FairPlaces places_{kPlaces};
  FairLimit rate_{kRate, kBurst};
};

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_WEBHOOK_H_
