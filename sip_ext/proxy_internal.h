/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the proxy share. Those that see messages: route.c (where to), message.c (send),
 * proxy.c (what comes in), invite.c (calls being set up), dialog.c (calls in progress), end.c
 * (calls being ended). place.c has the places, call.c the calls. */
#ifndef SIP_EXT_PROXY_INTERNAL_H
#define SIP_EXT_PROXY_INTERNAL_H

#define SU_ROOT_MAGIC_T struct proxy
#define SU_TIMER_ARG_T struct proxy
#define NTA_AGENT_MAGIC_T struct proxy
#define NTA_INCOMING_MAGIC_T struct invite
#define NTA_OUTGOING_MAGIC_T void

#include <sofia-sip/msg_addr.h>
#include <sofia-sip/nta.h>
#include <sofia-sip/nta_stateless.h>
#include <sofia-sip/nta_tport.h>
#include <sofia-sip/sip_header.h>
#include <sofia-sip/sip_status.h>
#include <sofia-sip/sip_util.h>
#include <sofia-sip/su_log.h>
#include <sofia-sip/su_wait.h>
#include <sofia-sip/tport.h>

#include "call.h"
#include "config.h"
#include "flow.h"
#include "log.h"
#include "proxy.h"
#include "store.h"

/* The SIP stack's own logs. */
extern su_log_t nta_log[], tport_log[], su_log_default[];

#define MAX_LISTENERS 64
#define SECOND_US UINT64_C(1000000)
#define MAX_ROUTES 32  /* entries of a route set that are kept */
#define BRANCH_SIZE 40 /* bytes of a branch of ours, its ending zero counted */

/* An address that we listen on. */
struct listener {
    char ident[8];
    char uri[INET6_ADDRSTRLEN + 40]; /* "HOST:PORT;lr" or with ";transport=tcp", to record-route */
    char host[INET6_ADDRSTRLEN + 2]; /* as in a URI */
    char port[8];
    flow address;
    tport_t *tport; /* its primary */
};

struct invite;
struct refusals;

/* In the order in which they came. */
struct invite_list {
    struct invite *first, **end; /* end: where the next is linked, if there is a first */
};

struct proxy {
    su_root_t *root;
    su_home_t home[1];
    nta_agent_t *agent;
    msg_mclass_t *class;
    const config *config;
    store *store;
    struct listener listeners[MAX_LISTENERS];
    unsigned listener_count;
    url_t *server_url;
    flow server;
    uint8_t key[SIPHASH_KEY]; /* of flow tokens, branches and tags; survives in the store */
    uint64_t next_id;         /* in the store */
    uint64_t started_us;

    calls *calls;
    struct refusals *refusals;
    void *pool_block;
    seven_pool *pool;
    seven_rng rng;
    call **slots; /* the call at each place */
    uint32_t exempt_up, ending;
    uint32_t unplaced; /* calls up without a place */
    call **line;       /* those of them that wait for one; NULL where one has left the line */
    uint32_t line_first, line_end;

    struct invite_list held;          /* newcomers of this round */
    struct invite_list challenged[2]; /* with a place of the pool, and an exempt one */
    su_timer_t *tick, *round;
    bool round_armed;
    uint64_t last_turn_us, last_seen;
    bool commit; /* something was put into the store */
    void (*idle)(void *context);
    void *idle_context;
    uint64_t refused_us;                /* when the server last refused a BYE of ours */
    uint64_t stored_t_m, remembered_us; /* t_M in the store, and when it was put there */
    uint64_t trim_us;                   /* when a call was set up last */
    unsigned trims;                     /* times that memory was given back to the system since */

    proxy_status count;
    seven_tally before; /* decisions of pools that a reload replaced */
    seven_histogram cut_us;
    struct log_limit limits[8];
};

/* Limits of the log, one for each kind of line. */
enum { LIMIT_MALFORMED, LIMIT_REFUSED, LIMIT_CUT, LIMIT_END, LIMIT_STORE, LIMIT_LOOP, LIMIT_ODD };

/* ---- route.c: where a request goes ------------------------------------------------------- */

/* A request under way. */
typedef struct hop {
    msg_t *msg;
    sip_t *sip;
    flow source; /* where it came from */
    unsigned listener;
    bool from_server;
    unsigned passes; /* times that it had been through us, by our Route entries */
    flow token;      /* of the last of these; family 0: none */
} hop;

/* Looks at where a message came from. */
void hop_read(proxy *p, hop *h, msg_t *msg, sip_t *sip);

/* RFC 3261 16.3: 0, or the status to answer with. Counts Max-Forwards down. */
int hop_validate(proxy *p, hop *h);

/* RFC 3261 16.4: undoes strict routing and takes away the Route entries that are ours. */
void hop_preprocess(proxy *p, hop *h);

/* RFC 3261 16.5, 16.6: where it goes, in the message's memory; NULL: nowhere. */
url_t *hop_next(proxy *p, hop *h);

/* Writes ourselves into the path of the dialog (RFC 3261 16.6 step 4, RFC 5658). */
bool hop_record_route(proxy *p, hop *h, const flow *outer, const url_t *next);

/* The listener to send from, or -1; the preferred one, of maybe another configuration, if it can
 * be. */
int listener_for(const proxy *p, const url_t *next, unsigned preferred);

/* True for sip: and sips:. */
bool is_sip(const url_t *url);

/* True if two URIs name the same host and port. */
bool same_place(const url_t *a, const url_t *b);

/* True if a URI is an address that we listen on. */
bool is_ours(const proxy *p, const url_t *url);

/* True if there is a connection to that peer. */
bool connected(const proxy *p, const flow *f);

/* True if host:port is the server's. */
bool is_server(const proxy *p, const url_t *url);

/* Where a party is: its contact, unless that cannot be reached as written. */
bool unreachable(const url_t *contact, const flow *seen);

/* A URI that says only where to: host, port and transport. */
url_t *url_to(su_home_t *home, const url_t *url);
url_t *url_to_flow(su_home_t *home, const flow *f);

/* A branch of ours that follows from the one the request came with (RFC 3261 16.11). */
void branch_of(const proxy *p, const hop *h, bool ingress, char branch[BRANCH_SIZE]);

/* Reads that of a response: false if it answers nothing that we sent on. */
bool branch_read(const proxy *p, const sip_t *sip, bool *ingress, unsigned *listener);

/* ---- message.c: sending without a transaction -------------------------------------------- */

/* Sends a request on, or answers it 503; takes the message. */
void send_request(proxy *p, hop *h, const url_t *next, bool ingress);

/* Sends a request of our own, once, with a Via of that branch that it has, or a new one (NULL);
 * takes the message. */
void send_own(proxy *p, msg_t *msg, const url_t *next, const char *branch);

/* Sends a response on by its second Via, from the listener that its request came to, since what is
 * behind a NAT expects it from there; takes the message. */
void send_response(proxy *p, msg_t *msg, sip_t *sip, unsigned listener);

/* Answers a request; takes the message. */
void answer(proxy *p, msg_t *msg, int status, const char *phrase, bool retry_after);

/* The To-tag of what we refuse: it follows from the request, so that its ACK is known. */
void own_tag(const proxy *p, const sip_t *sip, char tag[24]);

/* "Retry-After: N" for what the configuration says. */
sip_retry_after_t *retry_after(const proxy *p, sip_retry_after_t r[1]);

/* A span of a URI, or of a list of Record-Route from first to before last, as text in home. */
span span_of_url(su_home_t *home, const url_t *url);
span span_of_routes(su_home_t *home, const sip_record_route_t *first,
                    const sip_record_route_t *last, bool reversed);

/* ---- refusal.c: who was refused a moment ago ---------------------------------------------- */

struct refusals *refusals_create(void);
void refusals_destroy(struct refusals *r);
uint64_t refusals_key(const struct refusals *r, const sip_t *sip);
bool refusals_has(const struct refusals *r, uint64_t key, uint64_t now_us);
void refusals_add(struct refusals *r, uint64_t key, uint64_t now_us);

/* ---- place.c: the pool, and the places of the exempt --------------------------------------- */

/* Makes another pool by this policy, which goes on from the t_M of the one there was, and puts the
 * calls there are into it. Those for which there is no place go on without, and have the first that
 * become free. False, and nothing has changed: no memory. */
bool place_pool(proxy *p, const seven_policy *policy, char *error, size_t error_size);

/* Calls up beyond the places there are, exempt ones beyond theirs included. */
uint32_t place_lacking(const proxy *p);

/* Asks for a place. True: c has one; *victim is who lost it, or NULL. */
bool place_take(proxy *p, call *c, bool exempt, call **victim);

/* The place's clock starts: the call is in progress since since_us. */
void place_serve(proxy *p, call *c, uint64_t since_us);

/* Gives the place back, for this reason; the call goes on without. */
void place_leave(proxy *p, call *c, enum proxy_end end);

/* ---- invite.c: a call being set up --------------------------------------------------------- */

/* Takes the message of an INVITE that starts a call. */
void invite_start(proxy *p, hop *h);

/* The round is over: sends on those held. */
void invite_round(proxy *p);

/* Ends a call that is HELD, WAITING or CHALLENGED, with this answer to its caller. */
void invite_abandon(proxy *p, call *c, int status, const char *phrase, enum proxy_end end);

/* Frees the transactions of a call, when all is torn down. */
void invite_forget(call *c);

/* A response from the server to such an INVITE, after the first. False: the message is the caller's
 * still. */
bool invite_response(proxy *p, msg_t *msg, sip_t *sip);

/* True if an INVITE with these Vias is that of c, sent on by the server. */
bool invite_came_by(const call *c, const sip_via_t *via);

/* How many are held. */
uint32_t invite_held(const proxy *p);

/* Its time has come: timer C, or no answer to a CANCEL, or no second try. */
void invite_due(proxy *p, call *c);

/* ---- dialog.c: a call in progress ---------------------------------------------------------- */

/* A request in a dialog of c. 0: pass it on; or the status to answer with. */
int dialog_request(proxy *p, hop *h, call *c, enum call_side from, const url_t *next);

/* A response to such a request, that came from the server or not. False: do not pass it on. */
bool dialog_response(proxy *p, sip_t *sip, bool from_server, bool ingress);

/* A 2xx answered the INVITE of c, and is not passed on yet: whoever is told of a call will find it
 * known, whatever happens to this process. False: what it says is too long to be kept. */
bool dialog_answered(proxy *p, call *c, const sip_t *sip);

/* Keeps the dialog in the store, or no more. */
void dialog_store(proxy *p, call *c);
void dialog_unstore(proxy *p, call *c);

/* What was put into the store, or taken out, is from now on. */
void dialog_commit(proxy *p);

/* Its time has come: timer H, the session interval, or a BYE without an answer. */
void dialog_due(proxy *p, call *c);

/* Gives the place back and forgets the call, or only this fork of it. */
void dialog_over(proxy *p, call *c, enum proxy_end end);

/* ---- end.c: ending a call ------------------------------------------------------------------ */

/* Ends an answered call: BYE to both sides, or only to the callee's if the caller has heard of an
 * error. It is freed when that is done. */
void end_call(proxy *p, call *c, enum proxy_end end);
void end_callee(proxy *p, call *c, enum proxy_end end);

/* Ends whoever lost its place. */
void end_victim(proxy *p, call *c);

/* The server's side has confirmed the end of a victim: counts how long that took. */
void end_confirmed(proxy *p, uint64_t decided_us);

/* Done with one of the ended: forgets the call and counts. */
void end_done(proxy *p, call *c);

/* Frees the transactions of a call, when all is torn down. */
void end_forget(call *c);

/* ACKs a 2xx in place of the caller. */
void end_ack(proxy *p, const call *c);

#endif
