/* SPDX-License-Identifier: Apache-2.0 */
/** The message class of the proxy: sofia-sip's own, but for one thing that is put right. */
#ifndef SIP_EXT_PARSER_H
#define SIP_EXT_PARSER_H

#include <sofia-sip/msg_types.h>

/** A class that understands SIP messages after empty lines (RFC 3261 section 7.5). NULL: no memory;
 * free() it after the agent. */
msg_mclass_t *parser_create(void);

#endif
