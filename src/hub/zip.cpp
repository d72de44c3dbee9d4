#include "hub/zip.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace adze::hub {
namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50, kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr std::size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr std::size_t kMaxComment = 0xffff;

template <class T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

tl::unexpected<Error> refuse(ErrorCode code, const std::filesystem::path& path, std::string_view what) {
  return fail(code, fmt::format("the archive '{}' {}", path.filename().string(), what), "download it again");
}

// Where the end record starts: it is the last thing in the file but for a comment.
std::size_t find_end(std::span<const std::byte> bytes) {
  if (bytes.size() < kEndBytes) return bytes.size();
  const std::size_t last = bytes.size() - kEndBytes;
  const std::size_t first = last > kMaxComment ? last - kMaxComment : 0;
  for (std::size_t at = last + 1; at-- > first;) {
    if (load<std::uint32_t>(bytes, at) == kEndSignature && load<std::uint16_t>(bytes, at + 20) == last - at) return at;
  }
  return bytes.size();
}

struct Inflate {
  z_stream stream{};
  bool ready = false;
  // Raw deflate: the zip format has its own checksum.
  Inflate() { ready = ::inflateInit2(&stream, -MAX_WBITS) == Z_OK; }
  ~Inflate() {
    if (ready) ::inflateEnd(&stream);
  }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;
};

}  // namespace

Result<ZipArchive> ZipArchive::open(const std::filesystem::path& path) {
  ZipArchive archive;
  ADZE_TRY(archive.map_, MappedFile::open(path));
  const auto bytes = archive.map_.bytes();
  const std::size_t end = find_end(bytes);
  if (end == bytes.size()) return refuse(ErrorCode::corrupt_file, path, "has no end record: it is truncated or no zip");
  const std::size_t count = load<std::uint16_t>(bytes, end + 10);
  std::size_t at = load<std::uint32_t>(bytes, end + 16);
  if (count == 0xffff || at == 0xffffffff) return refuse(ErrorCode::unsupported_feature, path, "is a zip64 archive");
  for (std::size_t i = 0; i < count; ++i) {
    if (at > end || end - at < kEntryBytes || load<std::uint32_t>(bytes, at) != kEntrySignature) {
      return refuse(ErrorCode::corrupt_file, path, "has a damaged directory");
    }
    const std::size_t name_bytes = load<std::uint16_t>(bytes, at + 28);
    const std::size_t record_bytes =
        kEntryBytes + name_bytes + load<std::uint16_t>(bytes, at + 30) + load<std::uint16_t>(bytes, at + 32);
    if (record_bytes > end - at) return refuse(ErrorCode::corrupt_file, path, "has a damaged directory");
    ZipMember member;
    member.name.assign(reinterpret_cast<const char*>(bytes.data()) + at + kEntryBytes, name_bytes);
    member.method = load<std::uint16_t>(bytes, at + 10);
    member.crc = load<std::uint32_t>(bytes, at + 16);
    member.packed_size = load<std::uint32_t>(bytes, at + 20);
    member.size = load<std::uint32_t>(bytes, at + 24);
    member.header_offset = load<std::uint32_t>(bytes, at + 42);
    const bool encrypted = (load<std::uint16_t>(bytes, at + 8) & 1) != 0;
    if (encrypted || (member.method != 0 && member.method != 8) || member.size == 0xffffffff ||
        member.packed_size == 0xffffffff) {
      return refuse(ErrorCode::unsupported_feature, path, "uses encryption, zip64 or an unknown compression");
    }
    archive.members_.push_back(std::move(member));
    at += record_bytes;
  }
  return archive;
}

const ZipMember* ZipArchive::find(std::string_view name) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const ZipMember& m) { return m.name == name; });
  return found == members_.end() ? nullptr : &*found;
}

Result<std::span<const std::byte>> ZipArchive::packed_bytes(const ZipMember& member) const {
  const auto bytes = map_.bytes();
  const std::size_t at = member.header_offset;
  if (at > bytes.size() || bytes.size() - at < kLocalBytes || load<std::uint32_t>(bytes, at) != kLocalSignature) {
    return refuse(ErrorCode::corrupt_file, map_.path(),
                  fmt::format("has no '{}' where its directory says", member.name));
  }
  const std::size_t header = kLocalBytes + load<std::uint16_t>(bytes, at + 26) + load<std::uint16_t>(bytes, at + 28);
  if (header > bytes.size() - at || member.packed_size > bytes.size() - at - header) {
    return refuse(ErrorCode::corrupt_file, map_.path(), fmt::format("is truncated inside '{}'", member.name));
  }
  return bytes.subspan(at + header, member.packed_size);
}

Status ZipArchive::unpack(const ZipMember& member, const Sink& sink) const {
  ADZE_TRY(std::span<const std::byte> in, packed_bytes(member));
  const auto damaged = [&] {
    return refuse(ErrorCode::corrupt_file, map_.path(), fmt::format("holds a damaged '{}'", member.name));
  };
  std::uint64_t written = 0;
  uLong crc = ::crc32(0, nullptr, 0);
  const auto deliver = [&](std::span<const std::byte> piece) -> Status {
    written += piece.size();
    if (written > member.size) return damaged();  // never more than was declared
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
    return sink(piece);
  };
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  if (member.method == 0) {
    for (; !in.empty(); in = in.subspan(std::min(kPiece, in.size()))) {
      ADZE_TRY_STATUS(deliver(in.first(std::min(kPiece, in.size()))));
    }
  } else {
    Inflate inflate;
    if (!inflate.ready) return fail(ErrorCode::out_of_memory, "no memory to unpack an archive");
    const auto buffer = std::make_unique<std::byte[]>(kPiece);
    inflate.stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    inflate.stream.avail_in = static_cast<uInt>(in.size());  // below 2^32: no zip64
    for (int state = Z_OK; state != Z_STREAM_END;) {
      inflate.stream.next_out = reinterpret_cast<Bytef*>(buffer.get());
      inflate.stream.avail_out = static_cast<uInt>(kPiece);
      state = ::inflate(&inflate.stream, Z_NO_FLUSH);
      const std::size_t produced = kPiece - inflate.stream.avail_out;
      if ((state != Z_OK && state != Z_STREAM_END) || (produced == 0 && state == Z_OK)) return damaged();
      ADZE_TRY_STATUS(deliver({buffer.get(), produced}));
    }
  }
  if (written != member.size || crc != member.crc) return damaged();
  return {};
}

}  // namespace adze::hub
