// Chat templates from bytes: the template, then, behind a line of its own that reads "====", the JSON it is rendered
// with. Nothing may crash, hang or grow without bound; whatever renders must be segments as the header promises.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.hpp"
#include "text/chat_template.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kSeparator = "\n====\n";
  constexpr std::string_view kInput =
      R"({"messages": [{"role": "user", "content": "hi <|im_end|>"}], "n": 3, "s": "text",
                                          "l": [1, 2.5, null, "x"], "d": {"a": true}, "bos_token": "<s>"})";
  const std::size_t split = bytes.find(kSeparator);
  const std::string_view source = bytes.substr(0, split);
  const std::string_view input = split == std::string_view::npos ? kInput : bytes.substr(split + kSeparator.size());
  const auto parsed = adze::text::ChatTemplate::parse(std::string(source));
  if (!parsed) return 0;
  adze::text::RenderOptions options;
  options.now = adze::text::CivilTime{2026, 7, 26, 13, 5, 9};
  const auto segments = parsed->render(input, options);
  if (!segments) return 0;
  for (std::size_t i = 0; i < segments->size(); ++i) {
    ADZE_CHECK(!(*segments)[i].text.empty(), "empty segment");
    ADZE_CHECK(i == 0 || (*segments)[i].literal != (*segments)[i - 1].literal, "neighbours of one kind");
  }
  return 0;
}
