/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An overload, from the first decision it forces to some seconds after the last: what an operator
 * should be told of once, whatever the number of decisions. One caller at a time follows it; zero
 * bytes are an episode not begun, and may lie in shared memory.
 */
#ifndef SEVEN_EPISODE_H
#define SEVEN_EPISODE_H

#include "seven.h"

typedef struct seven_episode {
    uint64_t began_us, last_us; /* 0: not in one */
    bool told;
    seven_tally before, seen; /* the decisions before it began, and up to now */
} seven_episode;

enum seven_news {
    SEVEN_NO_NEWS,
    SEVEN_FULL, /* it has lasted tell_us: once an episode */
    SEVEN_OVER  /* calm_us without a decision; only if SEVEN_FULL was told */
};

/** Takes in the decisions so far. A decision is a replacement, a refusal or a relief. */
enum seven_news seven_follow(seven_episode *episode, const seven_tally *tally, uint64_t now_us,
                             uint64_t tell_us, uint64_t calm_us);

/** The decisions of the episode. */
seven_tally seven_episode_tally(const seven_episode *episode);

#endif
