/* SPDX-License-Identifier: Apache-2.0 */
#include "episode.h"

static uint64_t decisions(const seven_tally *tally)
{
    return tally->replaced + tally->refused + tally->relieved;
}

static void take_in(seven_episode *episode, const seven_tally *tally, uint64_t now_us)
{
    if (decisions(tally) > decisions(&episode->seen)) {
        if (episode->began_us == 0) {
            episode->began_us = now_us;
            episode->before = episode->seen;
            episode->told = false;
        }
        episode->last_us = now_us;
    }
    episode->seen = *tally;
}

enum seven_news seven_follow(seven_episode *episode, const seven_tally *tally, uint64_t now_us,
                             uint64_t tell_us, uint64_t calm_us)
{
    if (now_us < episode->last_us) {
        now_us = episode->last_us; /* another caller's clock was read later */
    }
    take_in(episode, tally, now_us);
    if (episode->began_us == 0) {
        return SEVEN_NO_NEWS;
    }
    if (!episode->told && now_us - episode->began_us >= tell_us &&
        now_us - episode->last_us < calm_us) {
        episode->told = true;
        return SEVEN_FULL;
    }
    if (now_us - episode->last_us < calm_us) {
        return SEVEN_NO_NEWS;
    }
    episode->began_us = 0;
    return episode->told ? SEVEN_OVER : SEVEN_NO_NEWS;
}

seven_tally seven_episode_tally(const seven_episode *episode)
{
    const seven_tally *a = &episode->seen, *b = &episode->before;

    return (seven_tally){.admitted = a->admitted - b->admitted,
                         .replaced = a->replaced - b->replaced,
                         .refused = a->refused - b->refused,
                         .relieved = a->relieved - b->relieved};
}
