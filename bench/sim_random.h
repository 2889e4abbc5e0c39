/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator draws. */
#ifndef SIM_RANDOM_H
#define SIM_RANDOM_H

#include <math.h>

#include "sim.h"

#define SIM_PI 3.14159265358979323846

/* Exponential, by inversion. */
static inline double draw_exponential(seven_rng *rng, double mean)
{
    return -mean * log(1 - seven_unit(rng));
}

/* Lognormal, by Box and Muller (1958): mu and sigma are of the logarithm. */
static inline double draw_lognormal(seven_rng *rng, double mu, double sigma)
{
    double radius = sqrt(-2 * log(1 - seven_unit(rng)));

    return exp(mu + sigma * radius * cos(2 * SIM_PI * seven_unit(rng)));
}

/* mu and sigma of a lognormal of that mean: "coded" has the public model's variance, 131301, and
 * "corrected" the same in the unit that its authors meant, 131301 / 3600 (a call's mean is in
 * minutes, the variance was in square seconds). */
static inline void lognormal_of(enum sim_lengths lengths, double mean, double *mu, double *sigma)
{
    double variance = lengths == SIM_LOGNORMAL_CODED ? 131301 : 131301.0 / 3600;
    double square = log(1 + variance / (mean * mean));

    *sigma = sqrt(square);
    *mu = log(mean) - square / 2;
}

#endif
