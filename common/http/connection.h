// One client's connection: it reads, answers and times requests one after the other. It runs on the
// server's thread, and each pending operation holds a shared_ptr that keeps it alive. Included by
// the .cc files of this folder only, as it needs Boost.Beast.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "common/http/server.h"

namespace mt::http {

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  // Callbacks into the server, on its thread.
  struct Hooks {
    std::function<void(Connection*)> active;  // a request has begun, so the connection is not idle
    // The connection is closed; the server drops its reference.
    std::function<void(Connection*)> gone;
  };
  // `config` and `hooks` must outlive the connection.
  Connection(boost::asio::ip::tcp::socket socket, const Server::Config* config, const Hooks* hooks);

  // Starts the first read. The connection must be owned by a shared_ptr.
  void Run() { AwaitRequest(); }
  // Closes the socket and calls hooks.gone once; further calls do nothing.
  void Close();

 private:
  using Body = boost::beast::http::response<boost::beast::http::string_body>;
  using HeadOnly = boost::beast::http::response<boost::beast::http::empty_body>;
  using Error = boost::beast::error_code;

  void AwaitRequest();
  void ReadHeader();
  void OnHeader(Error error);
  void Answer(const Response& response, bool keep_alive);
  void OnWritten(Error error);
  // Discards what the client still sends, for up to a second or a MiB: closing a socket with unread
  // bytes resets the connection, which may destroy the answer on its way.
  void Linger();
  // Runs the handler of the request's path. *keep_alive: the connection can take another request.
  Response Handle(bool* keep_alive) const;

  boost::beast::tcp_stream stream_;
  const Server::Config* config_;
  const Hooks* hooks_;
  boost::beast::flat_buffer buffer_;
  // A parser serves one request; it is null before the first one.
  std::unique_ptr<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  std::variant<Body, HeadOnly> response_;
  bool keep_alive_ = false;
  size_t lingered_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace mt::http
