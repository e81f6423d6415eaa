// One client's connection: requests one after the other, each read, answered and timed. Lives on
// the server's thread and keeps itself alive while an operation is under way. Included by the .cc
// files of this folder only (Boost.Beast).
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
  // What the server does for its connections.
  struct Hooks {
    std::function<void(Connection*)> active;  // a request came: the connection is not quiet
    std::function<void(Connection*)> gone;
  };
  // `config` and the hooks outlive the connection.
  Connection(boost::asio::ip::tcp::socket socket, const Server::Config* config, const Hooks* hooks);

  void Run() { AwaitRequest(); }
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
  // Reads what the client still sends, for a moment: closing with unread bytes would reset the
  // connection and could take the answer with it.
  void Linger();
  Response Handle(bool* keep_alive) const;

  boost::beast::tcp_stream stream_;
  const Server::Config* config_;
  const Hooks* hooks_;
  boost::beast::flat_buffer buffer_;
  // A parser serves one request; there is one from the first request on.
  std::unique_ptr<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  std::variant<Body, HeadOnly> response_;
  bool keep_alive_ = false;
  size_t lingered_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace mt::http
