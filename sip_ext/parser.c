/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three things about messages that sofia-sip would do otherwise.
 *
 * In the mode that keeps the bytes of headers as they came (MSG_DO_EXTRACT_COPY), sofia-sip takes
 * the first line of a message from the wrong place if empty lines stand before it, as keepalives
 * do (RFC 5626 section 3.5.1): the copy that is parsed begins with them and ends too early. Both
 * classes of first lines get a parser here that looks at what was received instead.
 *
 * A response to an INVITE of a call (its branch says so) must not be matched by nta with the
 * client transaction that sent it: nta takes it from whoever sends it, and keeps the transaction
 * for 32 s after a final one. So the branch is hidden from it, until parser_branch().
 *
 * A request whose Via has a maddr would have its answer sent there (RFC 3261 18.2.2), to anybody.
 * That is for multicast (18.1.1), which is not listened to: the answer goes where the request came
 * from.
 */
#include "parser.h"

#include <stdlib.h>
#include <string.h>

#include <sofia-sip/msg.h>
#include <sofia-sip/msg_header.h>
#include <sofia-sip/msg_mime.h>
#include <sofia-sip/msg_mclass.h>
#include <sofia-sip/sip_header.h>
#include <sofia-sip/sip_parser.h>

/* text is a copy, of `length` bytes and an ending zero, of what begins at h_data. */
static void skip_empty_lines(msg_header_t *h, char *text, isize_t length)
{
    msg_common_t *common = h->sh_common;
    const char *came = common->h_data;
    size_t blank = came != NULL ? strspn(came, "\r\n \t") : 0;

    if (blank > 0 && blank < common->h_len && text != came) {
        memcpy(text, came + blank, (size_t)length);
        common->h_data = came + blank;
        common->h_len -= (unsigned)blank;
    }
}

static issize_t parse_request(su_home_t *home, msg_header_t *h, char *text, isize_t length)
{
    skip_empty_lines(h, text, length);
    return sip_request_class->hc_parse(home, h, text, length);
}

static issize_t parse_status(su_home_t *home, msg_header_t *h, char *text, isize_t length)
{
    skip_empty_lines(h, text, length);
    return sip_status_class->hc_parse(home, h, text, length);
}

/* Called when the header is whole, and again as more of the body comes. */
static issize_t extract_body(msg_t *msg, msg_pub_t *pub, char *bytes, isize_t size, int eos)
{
    sip_t *sip = (sip_t *)pub;
    sip_via_t *via = sip->sip_via;

    if (sip->sip_status != NULL && via != NULL && via->v_branch != NULL && sip->sip_cseq != NULL &&
        sip->sip_cseq->cs_method == sip_method_invite &&
        strncmp(via->v_branch, PARSER_INGRESS, strlen(PARSER_INGRESS)) == 0) {
        via->v_branch = NULL;
    }
    if (sip->sip_request != NULL && via != NULL && via->v_maddr != NULL) {
        msg_header_remove_param(via->v_common, "maddr");
        via->v_maddr = NULL;
    }
    return sip_default_mclass()->mc_extract_body(msg, pub, bytes, size, eos);
}

void parser_branch(sip_t *sip)
{
    if (sip->sip_via != NULL && sip->sip_via->v_branch == NULL) {
        sip->sip_via->v_branch = msg_header_find_param(sip->sip_via->v_common, "branch=");
    }
}

msg_mclass_t *parser_create(void)
{
    static struct msg_hclass_s request, status;
    msg_mclass_t *class = msg_mclass_clone(sip_default_mclass(), 0, 0);

    if (class != NULL) {
        request = *sip_request_class;
        request.hc_parse = parse_request;
        status = *sip_status_class;
        status.hc_parse = parse_status;
        class->mc_request->hr_class = &request;
        class->mc_status->hr_class = &status;
        class->mc_extract_body = extract_body;
    }
    return class;
}
