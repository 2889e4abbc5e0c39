/* SPDX-License-Identifier: Apache-2.0 */
/** The message class of the proxy: sofia-sip's own, but for three things that are put right. */
#ifndef SIP_EXT_PARSER_H
#define SIP_EXT_PARSER_H

#include <sofia-sip/msg_types.h>
#include <sofia-sip/sip.h>

/** How our branches begin, and those in INVITEs of calls on their way to the server. */
#define PARSER_BRANCH "z9hG4bK7"
#define PARSER_INGRESS PARSER_BRANCH "i"

/**
 * A class that understands SIP messages after empty lines (RFC 3261 section 7.5), hides the branch
 * of a response to an INVITE of a call, and leaves out a maddr in the Via of a request. NULL: no
 * memory; free() it after the agent.
 */
msg_mclass_t *parser_create(void);

/** Shows the branch of a response again. */
void parser_branch(sip_t *sip);

#endif
