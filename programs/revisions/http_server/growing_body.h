// A body for Boost.Beast's parser that takes memory for what has arrived, not for the length that
// the client announces.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_GROWING_BODY_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_GROWING_BODY_H_

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional/optional.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cbt::kube::http_server {

struct GrowingBody {
  using value_type = std::string;

  // The names are Beast's.
  class reader {
   public:
    template <bool kIsRequest, typename Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, boost::beast::error_code& error) { error = {}; }

    template <typename Buffers>
    size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      size_t taken = 0;
      const auto end = boost::asio::buffer_sequence_end(buffers);
      for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at) {
        const boost::asio::const_buffer piece = *at;
        body_.append(static_cast<const char*>(piece.data()), piece.size());
        taken += piece.size();
      }
      error = {};
      return taken;
    }

    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_GROWING_BODY_H_
