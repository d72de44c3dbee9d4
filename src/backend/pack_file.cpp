#include "backend/pack_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::backend {
namespace {

// What the header begins with.
struct Prefix {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t header_bytes;  // this prefix included
  std::uint64_t payload_offset;
  std::uint64_t file_bytes;
  Digest checksum;  // of the header, with zeros here
};
static_assert(sizeof(Prefix) == 56 && std::is_trivially_copyable_v<Prefix>);

constexpr std::array<char, 8> kMagic{'A', 'D', 'Z', 'E', 'P', 'A', 'C', 'K'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr const char* kThrowAway = "remove it (adze cache packs --clear); it is made anew when the model runs";

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

class Writer {
 public:
  template <class Number>
  void put(Number value) {
    static_assert(std::is_trivially_copyable_v<Number>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    text_ += text;
  }
  std::string& text() { return text_; }

 private:
  std::string text_;
};

// Bounded reads; a failed one leaves zeros and is remembered.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <class Number>
  Number take() {
    Number value{};
    const std::string_view from = take_bytes(sizeof value);
    std::ranges::copy(from, reinterpret_cast<char*>(&value));
    return value;
  }
  std::string take_text() {
    const auto size = take<std::uint32_t>();
    if (size > limits::kPackMaxTextBytes) fine_ = false;
    return std::string(take_bytes(fine_ ? size : 0));
  }
  // A count of things that take at least `least` bytes each.
  std::uint64_t take_count(std::uint64_t most, std::uint64_t least) {
    const auto count = take<std::uint64_t>();
    if (count > most || count > rest_.size() / least) fine_ = false;
    return fine_ ? count : 0;
  }
  bool fine() const { return fine_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view take_bytes(std::size_t size) {
    if (size > rest_.size()) fine_ = false;
    if (!fine_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  bool fine_ = true;
};

tl::unexpected<Error> damaged(std::string_view what) {
  return fail(ErrorCode::corrupt_file, fmt::format("the pack file is damaged: {}", what), kThrowAway);
}

void put_body(Writer& out, const PackHeader& header) {
  out.put(header.key);
  out.put_text(header.layout);
  out.put_text(header.model);
  out.put(static_cast<std::uint64_t>(header.sources.size()));
  for (const PackSource& source : header.sources) {
    out.put_text(source.path.string());
    out.put(source.bytes);
    out.put(source.modified_ns);
  }
  out.put(static_cast<std::uint64_t>(header.entries.size()));
  for (const PackEntry& entry : header.entries) {
    out.put_text(entry.name);
    out.put(entry.offset);
    out.put(entry.group_bytes);
    out.put(entry.groups);
    out.put(entry.content);
  }
}

void take_body(Reader& in, PackHeader& header) {
  header.key = in.take<Digest>();
  header.layout = in.take_text();
  header.model = in.take_text();
  constexpr std::uint64_t kLeastSource = sizeof(std::uint32_t) + 2 * sizeof(std::uint64_t);
  const std::uint64_t sources = in.take_count(limits::kPackMaxSources, kLeastSource);
  for (std::uint64_t i = 0; i < sources && in.fine(); ++i) {
    PackSource& source = header.sources.emplace_back();
    source.path = in.take_text();
    source.bytes = in.take<std::uint64_t>();
    source.modified_ns = in.take<std::int64_t>();
  }
  constexpr std::uint64_t kLeastEntry = sizeof(std::uint32_t) + 3 * sizeof(std::uint64_t) + sizeof(Digest);
  const std::uint64_t entries = in.take_count(limits::kPackMaxEntries, kLeastEntry);
  for (std::uint64_t i = 0; i < entries && in.fine(); ++i) {
    PackEntry& entry = header.entries.emplace_back();
    entry.name = in.take_text();
    entry.offset = in.take<std::uint64_t>();
    entry.group_bytes = in.take<std::uint64_t>();
    entry.groups = in.take<std::uint64_t>();
    entry.content = in.take<Digest>();
  }
}

bool possible_size(const PackEntry& entry) {
  return entry.group_bytes > 0 && entry.group_bytes % kPackAlignment == 0 &&
         entry.group_bytes <= limits::kPackMaxGroupBytes && entry.groups > 0 &&
         entry.groups <= limits::kPackMaxFileBytes / entry.group_bytes;
}

// Entries in ascending order, apart from each other, inside the payload.
Status check_entries(const PackHeader& header) {
  std::uint64_t free = header.payload_offset;
  for (const PackEntry& entry : header.entries) {
    if (!possible_size(entry)) {
      return damaged(fmt::format("'{}' has {} groups of {} bytes", entry.name, entry.groups, entry.group_bytes));
    }
    if (entry.offset % kPackAlignment != 0 || entry.offset < free || entry.offset > header.file_bytes ||
        entry.bytes() > header.file_bytes - entry.offset) {
      return damaged(fmt::format("'{}' lies at {} with {} bytes, in a file of {}", entry.name, entry.offset,
                                 entry.bytes(), header.file_bytes));
    }
    free = entry.offset + entry.bytes();
  }
  return {};
}

}  // namespace

Status lay_out(PackHeader& header) {
  const auto too_much = [&](std::string_view what) {
    return fail(ErrorCode::limit_exceeded, fmt::format("{} of '{}' cannot be held by a pack file", what, header.model));
  };
  const auto too_long = [](std::string_view text) { return text.size() > limits::kPackMaxTextBytes; };
  if (header.entries.size() > limits::kPackMaxEntries) return too_much("as many tensors as those");
  if (header.sources.size() > limits::kPackMaxSources) return too_much("as many files as those");
  bool long_text = too_long(header.model) || too_long(header.layout);
  for (const PackSource& source : header.sources) long_text |= too_long(source.path.native());
  for (const PackEntry& entry : header.entries) long_text |= too_long(entry.name);
  if (long_text) return too_much("a name");
  Writer body;
  put_body(body, header);
  if (body.text().size() > limits::kPackMaxHeaderBytes - sizeof(Prefix)) return too_much("all names");
  header.payload_offset = align_up(sizeof(Prefix) + body.text().size(), kPackPayloadAlignment);
  std::uint64_t end = header.payload_offset;
  for (PackEntry& entry : header.entries) {
    if (!possible_size(entry) || end > limits::kPackMaxFileBytes) return too_much(fmt::format("'{}'", entry.name));
    entry.offset = end;
    end += entry.bytes();
  }
  header.file_bytes = end;
  return {};
}

std::string serialise(const PackHeader& header) {
  Prefix prefix{.magic = kMagic,
                .version = kVersion,
                .byte_order = kByteOrder,
                .header_bytes = 0,
                .payload_offset = header.payload_offset,
                .file_bytes = header.file_bytes,
                .checksum = {}};
  Writer out;
  out.put(prefix);
  put_body(out, header);
  prefix.header_bytes = out.text().size();
  std::memcpy(out.text().data(), &prefix, sizeof prefix);
  prefix.checksum = digest(out.text());
  std::memcpy(out.text().data(), &prefix, sizeof prefix);
  return std::move(out.text());
}

Result<PackHeader> parse_pack_header(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  Prefix prefix{};
  if (bytes.size() >= sizeof prefix) std::memcpy(&prefix, bytes.data(), sizeof prefix);
  if (prefix.magic != kMagic) return fail(ErrorCode::not_a_model, "this is no pack file");
  if (prefix.version != kVersion || prefix.byte_order != kByteOrder) {
    return fail(ErrorCode::unsupported_feature,
                "the pack file was made by another version of Adze, or on another machine", kThrowAway);
  }
  if (prefix.file_bytes != file_bytes) {
    return damaged(fmt::format("it has {} bytes and says {}", file_bytes, prefix.file_bytes));
  }
  if (prefix.header_bytes < sizeof prefix || prefix.header_bytes > bytes.size() ||
      prefix.header_bytes > limits::kPackMaxHeaderBytes || prefix.header_bytes > prefix.payload_offset ||
      prefix.payload_offset % kPackPayloadAlignment != 0 || prefix.payload_offset > file_bytes) {
    return damaged("the sizes in its header are impossible");
  }
  std::string text(reinterpret_cast<const char*>(bytes.data()), prefix.header_bytes);
  std::memset(text.data() + offsetof(Prefix, checksum), 0, sizeof prefix.checksum);
  if (digest(text) != prefix.checksum) return damaged("its header does not match its checksum");
  PackHeader header;
  header.payload_offset = prefix.payload_offset;
  header.file_bytes = prefix.file_bytes;
  Reader in(std::string_view(text).substr(sizeof prefix));
  take_body(in, header);
  if (!in.fine() || !in.at_end()) return damaged("its header does not end where it should");
  ADZE_TRY_STATUS(check_entries(header));
  return header;
}

Result<PackHeader> read_pack_header(const std::filesystem::path& path) {
  ADZE_TRY(const MappedFile file, MappedFile::open(path));
  return parse_pack_header(file.bytes(), file.bytes().size());
}

Status verify_pack(const std::filesystem::path& path, const std::function<bool()>& go_on) {
  ADZE_TRY(const MappedFile file, MappedFile::open(path));
  ADZE_TRY(const PackHeader header, parse_pack_header(file.bytes(), file.bytes().size()));
  std::vector<Digest> groups;
  for (const PackEntry& entry : header.entries) {
    groups.clear();
    for (std::uint64_t g = 0; g < entry.groups; ++g) {
      if (!go_on()) return fail(ErrorCode::cancelled, "stopped");
      groups.push_back(digest(file.bytes().subspan(entry.offset + g * entry.group_bytes, entry.group_bytes)));
    }
    if (digest(std::as_bytes(std::span(groups))) != entry.content) {
      return damaged(fmt::format("'{}' does not match its checksum", entry.name));
    }
    file.release(entry.offset, entry.bytes());
  }
  return {};
}

}  // namespace adze::backend
