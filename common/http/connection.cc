// The life of a connection as a chain of Beast's asynchronous operations: wait for a byte (idle
// timeout), read a header (request timeout), answer, and either wait again or shut down and drain.
#include "common/http/connection.h"

#include <exception>
#include <string_view>
#include <utility>

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include "common/base/log.h"

namespace mt::http {
namespace {

namespace beast = boost::beast;
namespace bhttp = boost::beast::http;

constexpr size_t kReadBytes = 1'024;
constexpr unsigned kHttp11 = 11;
constexpr std::chrono::seconds kLingerTime{1};
constexpr size_t kLingerBytes = 1 << 20;

Response PlainText(int status, std::string_view text) {
  return {.status = status, .body = fmt::format("{}\n", text)};
}

// The path alone: "/metrics" for "/metrics?x=1" and for "http://host:1/metrics" (RFC 9112, section
// 3.2.2).
std::string_view PathOf(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (target.starts_with(kScheme)) {
    const size_t slash = target.find('/', kScheme.size());
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target.substr(0, target.find_first_of("?#"));
}

Response Malformed(const beast::error_code& error) {
  if (error == bhttp::error::header_limit || error == bhttp::error::buffer_overflow) {
    return PlainText(431, "the request's header is too large");
  }
  if (error == bhttp::error::body_limit) return PlainText(413, "requests here have no body");
  return PlainText(400, "this is no HTTP request");
}

}  // namespace

Connection::Connection(boost::asio::ip::tcp::socket socket, const Server::Config* config,
                       const Hooks* hooks)
    : stream_(std::move(socket)),
      config_(config),
      hooks_(hooks),
      // Holds a header of the largest size plus the read that exceeds it.
      buffer_(config->max_header_bytes + kReadBytes) {}

void Connection::Close() {
  if (std::exchange(closed_, true)) return;
  stream_.close();
  hooks_->gone(this);
}

void Connection::AwaitRequest() {
  if (buffer_.size() != 0) {  // pipelined behind the previous request
    ReadHeader();
    return;
  }
  stream_.expires_after(config_->idle_timeout);
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](Error error, size_t bytes) {
                            if (error) {
                              self->Close();
                              return;
                            }
                            self->buffer_.commit(bytes);
                            self->ReadHeader();
                          });
}

void Connection::ReadHeader() {
  hooks_->active(this);
  parser_ = std::make_unique<bhttp::request_parser<bhttp::empty_body>>();
  parser_->header_limit(static_cast<uint32_t>(config_->max_header_bytes));
  stream_.expires_after(config_->request_timeout);
  bhttp::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](Error error, size_t) { self->OnHeader(error); });
}

void Connection::OnHeader(Error error) {
  if (!error) {
    bool keep_alive = false;
    const Response response = Handle(&keep_alive);
    Answer(response, keep_alive);
    return;
  }
  const bool malformed = error.category() == bhttp::make_error_code(bhttp::error{}).category() &&
                         error != bhttp::error::end_of_stream &&
                         error != bhttp::error::partial_message;
  if (malformed) {
    Answer(Malformed(error), /*keep_alive=*/false);
  } else {
    Close();
  }
}

Response Connection::Handle(bool* keep_alive) const {
  const auto& request = parser_->get();
  // A body is not read, so the connection cannot be reused: what follows is not a request.
  *keep_alive = request.keep_alive() && parser_->is_done();
  if (request.version() == kHttp11 && request.count(bhttp::field::host) != 1) {
    *keep_alive = false;
    return PlainText(400, "the Host header is missing or given twice");
  }
  const std::string_view path = PathOf({request.target().data(), request.target().size()});
  const auto handler = config_->handlers.find(path);
  if (handler == config_->handlers.end()) return PlainText(404, "there is no such page here");
  if (request.method() != bhttp::verb::get && request.method() != bhttp::verb::head) {
    return PlainText(405, "only GET and HEAD are possible here");
  }
  try {
    return handler->second();
  } catch (const std::exception& failure) {
    log::Error("HTTP handler failed", {{"path", path}, {"error", failure.what()}});
    return PlainText(500, "this page failed; the log says why");
  }
}

void Connection::Answer(const Response& response, bool keep_alive) {
  keep_alive_ = keep_alive;
  const auto fill = [&](auto& message) {
    message.version(kHttp11);
    message.result(static_cast<unsigned>(response.status));
    message.set(bhttp::field::content_type, response.content_type);
    if (response.status == 405) message.set(bhttp::field::allow, "GET, HEAD");
    message.keep_alive(keep_alive);
    message.content_length(response.body.size());
  };
  stream_.expires_after(config_->request_timeout);
  const auto done = [self = shared_from_this()](Error error, size_t) { self->OnWritten(error); };
  if (parser_->is_header_done() && parser_->get().method() == bhttp::verb::head) {
    auto& message = response_.emplace<HeadOnly>();
    fill(message);
    bhttp::async_write(stream_, message, done);
    return;
  }
  auto& message = response_.emplace<Body>();
  message.body() = response.body;
  fill(message);
  bhttp::async_write(stream_, message, done);
}

void Connection::OnWritten(Error error) {
  if (error) {
    Close();
  } else if (keep_alive_) {
    AwaitRequest();
  } else {
    Error ignored;
    stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLingerTime);
    Linger();
  }
}

void Connection::Linger() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](Error error, size_t bytes) {
                            self->lingered_bytes_ += bytes;
                            if (error || self->lingered_bytes_ > kLingerBytes) {
                              self->Close();
                            } else {
                              self->Linger();
                            }
                          });
}

}  // namespace mt::http
