// One request, read piece by piece: adze-example-stream MODEL [TEXT]
#include <cstdio>
#include <string>

#include "adze/adze.hpp"

namespace {

int complain(const adze::Error& error) {
  std::fprintf(stderr, "%s%s%s\n", error.message.c_str(), error.hint.empty() ? "" : ": ", error.hint.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL [TEXT]\n", argv[0]);
    return 2;
  }
  auto engine = adze::Engine::load(argv[1], {});
  if (!engine) return complain(engine.error());

  adze::Request request;
  const auto ids = engine->tokenize(argc > 2 ? argv[2] : "Once upon a time", engine->adds_bos(), false);
  if (!ids) return complain(ids.error());
  request.prompt = *ids;
  request.options = engine->default_options();
  request.options.max_tokens = 32;
  request.options.sampling.seed = 1;

  auto answer = engine->submit(request);
  if (!answer) return complain(answer.error());
  while (const auto piece = answer->next()) std::fwrite(piece->text.data(), 1, piece->text.size(), stdout);

  const auto whole = answer->wait();
  if (!whole) return complain(whole.error());
  std::printf("\n(%s; %lld tokens in %lld forwards)\n", std::string(adze::finish_reason_name(whole->finish)).c_str(),
              static_cast<long long>(whole->statistics.generated_tokens),
              static_cast<long long>(whole->statistics.forwards));
  return 0;
}
