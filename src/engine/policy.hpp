// Every number that the engine decides with, in one place. Limits that protect against bad input are in
// base/limits.hpp; what a draft costs and when it pays, in speculate/.
#pragma once

#include <cstdint>

namespace adze::engine::policy {

// Rows of one forward where neither the caller nor a profile says so. More reuse each weight that was loaded and
// unpacked, but scratch and the wait for other requests grow with it. 96 are eight full tiles of the widest kernels.
inline constexpr int kChunk = 96;

// Requests that run side by side at the most; more wait in line. Each gets a row of a forward, and in a batch that is
// full they take turns.
inline constexpr int kMaxRunning = 256;
// Requests that wait in line at the most; more are refused.
inline constexpr int kMaxWaiting = 1024;

// While prompts wait, decoding rows leave them this share of a batch: 1 in so many.
inline constexpr int kPromptShare = 4;

// Recurrent states that are kept beside those of running sequences, so that prompts can go on from the middle: a
// conversation's two last ends, and a beginning that several share.
inline constexpr int kCheckpointSlots = 4;
// Sequences with a recurrent state that run side by side, where LoadOptions::sequences says nothing.
inline constexpr int kStateSequences = 2;

// Texts whose windows have pages of sliding layers of their own: so many that run, where LoadOptions::sequences says
// nothing, and so many ends of texts that are kept. More of either have to share these.
inline constexpr int kSlidingSequences = 8;
inline constexpr int kKeptWindows = 8;

// How often a thread that waits for an event made by another looks whether its request was cancelled, in seconds.
inline constexpr double kCancelPollSeconds = 0.02;

}  // namespace adze::engine::policy
