// Every command, one file each.
#pragma once

#include "cli/command.hpp"

namespace adze::cli {

extern const Command kRun;
extern const Command kGenerate;
extern const Command kTokenize;
extern const Command kDetokenize;
extern const Command kTemplate;
extern const Command kLogits;
extern const Command kInspect;
extern const Command kPlan;
extern const Command kPull;
extern const Command kList;
extern const Command kRemove;
extern const Command kConfig;
extern const Command kDoctor;
extern const Command kPerplexity;
extern const Command kConvert;
extern const Command kQuantize;
extern const Command kImatrix;
extern const Command kSynth;
extern const Command kManifest;
extern const Command kBench;
extern const Command kTune;
extern const Command kCache;
extern const Command kMan;
extern const Command kCompletion;
extern const Command kVersion;

}  // namespace adze::cli
