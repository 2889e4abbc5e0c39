/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters, what may be wrong with them, and the drop factor. */
#include <math.h>

#include "internal.h"

void seven_policy_defaults(seven_policy *policy, uint32_t places)
{
    *policy = (seven_policy){
        .places = places,
        .round_us = 100000,
        .strategy = SEVEN_TOURNAMENT,
        .p_wait = 8,
        .p_in = 2,
        .alpha = 1.89,
        .scale = 0.453, /* reproduces the 2018 paper's table */
        .learning = {.quantile = 0.5, .factor = 4, .min_us = 10000, .max_us = 5000000},
        .credit_us = 2000000,
        .admit_as = SEVEN_WAITING,
    };
}

static const char *learning_error(const seven_learning *l)
{
    if (!(l->quantile > 0 && l->quantile < 1)) {
        return "the quantile that t_M is learned from must be between 0 and 1";
    }
    if (!(l->factor >= 1 && l->factor <= 1000)) {
        return "the factor that t_M is learned with must be from 1 to 1000";
    }
    if (l->min_us < 1000 || l->max_us > SEVEN_MAX_TIME_US || l->min_us > l->max_us) {
        return "t_M must be learned within bounds of 1 ms to 1 day, the lower first";
    }
    return NULL;
}

static const char *drop_factor_error(const seven_policy *p)
{
    if (!(p->p_wait > 0 && p->p_wait <= 1e6)) {
        return "the drop factor while waiting must be over 0 and at most 1000000";
    }
    if (!(p->p_in > 0 && p->p_in <= 1e6)) {
        return "the drop factor in service must be over 0 and at most 1000000";
    }
    if (!(p->alpha > 0 && p->alpha <= 20)) { /* at 0 who is older would not count */
        return "the drop factor's alpha must be over 0 and at most 20";
    }
    if (!(p->scale > 0 && p->scale <= 1e6)) {
        return "the drop factor's scale must be over 0 and at most 1000000";
    }
    if (p->p_in > p->p_wait + p->scale * exp(p->alpha)) {
        return "the drop factor in service must not exceed the one just past t_M, "
               "wait + scale * e^alpha";
    }
    return NULL;
}

const char *seven_policy_error(const seven_policy *p)
{
    if (p->places < 1 || p->places > SEVEN_MAX_PLACES) {
        return "the number of places must be from 1 to 1048576";
    }
    if (p->round_us < 1000 || p->round_us > SEVEN_MAX_TIME_US) {
        return "the round must be from 1 ms to 1 day";
    }
    if (p->strategy != SEVEN_UNIFORM && p->strategy != SEVEN_ROULETTE &&
        p->strategy != SEVEN_TOURNAMENT) {
        return "the strategy must be uniform, roulette or tournament";
    }
    if (p->tournament > p->places) {
        return "a tournament cannot have more entrants than there are places";
    }
    if (p->t_m_us != 0 && (p->t_m_us < 1000 || p->t_m_us > SEVEN_MAX_TIME_US)) {
        return "t_M must be from 1 ms to 1 day";
    }
    if (p->credit_us > SEVEN_MAX_TIME_US) {
        return "the credit for progress must be at most 1 day";
    }
    if (p->admit_as != SEVEN_WAITING && p->admit_as != SEVEN_SERVED) {
        return "a newcomer must be admitted as waiting or as served";
    }
    if (p->t_m_us == 0 && learning_error(&p->learning) != NULL) {
        return learning_error(&p->learning);
    }
    return drop_factor_error(p);
}

bool seven_policy_equal(const seven_policy *a, const seven_policy *b)
{
    const seven_learning *l = &a->learning, *m = &b->learning;

    return a->places == b->places && a->round_us == b->round_us && a->strategy == b->strategy &&
           a->tournament == b->tournament && a->p_wait == b->p_wait && a->p_in == b->p_in &&
           a->alpha == b->alpha && a->scale == b->scale && a->t_m_us == b->t_m_us &&
           l->quantile == m->quantile && l->factor == m->factor && l->min_us == m->min_us &&
           l->max_us == m->max_us && a->credit_us == b->credit_us && a->admit_as == b->admit_as;
}

double drop_factor(const seven_policy *policy, double t_m, enum seven_state state, int64_t age)
{
    switch (state) {
    case SEVEN_WAITING:
        return policy->p_wait;
    case SEVEN_SERVED:
        if ((double)age <= t_m) {
            return policy->p_in;
        }
        return policy->p_wait + policy->scale * exp(policy->alpha * (double)age / t_m);
    case SEVEN_FREE:
    case SEVEN_BUSY:
        break;
    }
    return 0;
}

double seven_drop_factor(const seven_policy *policy, uint64_t t_m_us, enum seven_state state,
                         uint64_t age_us)
{
    return drop_factor(policy, (double)t_m_us, state, (int64_t)age_us);
}
