// Four chunks: header, palette, pixels, end. zlib compresses and sums; every row begins with its
// filter, 0 for none.
#include "client/plot/png.h"

#include <string_view>
#include <zlib.h>

#include "common/base/check.h"

namespace mt::client {
namespace {

void AppendBigEndian(uint32_t value, std::string* out) {
  for (const unsigned shift : {24U, 16U, 8U, 0U})
    out->push_back(static_cast<char>(value >> shift & 0xFFU));
}

const Bytef* BytesOf(const std::string& text) {
  return reinterpret_cast<const Bytef*>(text.data());
}

// A chunk: length of the data, name, data, CRC of name and data.
void AppendChunk(std::string_view name, std::string_view data, std::string* out) {
  AppendBigEndian(static_cast<uint32_t>(data.size()), out);
  const std::string body = std::string(name).append(data);
  out->append(body);
  AppendBigEndian(static_cast<uint32_t>(::crc32(0, BytesOf(body), static_cast<uInt>(body.size()))),
                  out);
}

std::string Deflated(const std::string& bytes) {
  uLongf size = ::compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  const int code = ::compress2(reinterpret_cast<Bytef*>(out.data()), &size, BytesOf(bytes),
                               static_cast<uLong>(bytes.size()), Z_DEFAULT_COMPRESSION);
  CHECK_EQ(code, Z_OK) << "zlib has no memory";
  out.resize(size);
  return out;
}

}  // namespace

std::string EncodePng(int width, int height, std::span<const Rgb> palette,
                      const std::vector<uint8_t>& pixels) {
  const auto row = static_cast<size_t>(width);
  CHECK_EQ(pixels.size(), row * static_cast<size_t>(height)) << "pixels of the picture";
  std::string header;
  AppendBigEndian(static_cast<uint32_t>(width), &header);
  AppendBigEndian(static_cast<uint32_t>(height), &header);
  header.append({'\x08', '\x03', '\0', '\0', '\0'});  // 8 bits, palette, deflate, filters, in rows
  std::string colors;
  for (const Rgb& color : palette) {
    for (const uint8_t part : {color.red, color.green, color.blue})
      colors.push_back(static_cast<char>(part));
  }
  std::string rows;
  for (size_t at = 0; at < pixels.size(); at += row) {
    rows.push_back('\0');
    rows.append(reinterpret_cast<const char*>(pixels.data()) + at, row);
  }
  std::string out = "\x89PNG\r\n\x1A\n";
  AppendChunk("IHDR", header, &out);
  AppendChunk("PLTE", colors, &out);
  AppendChunk("IDAT", Deflated(rows), &out);
  AppendChunk("IEND", "", &out);
  return out;
}

}  // namespace mt::client
