/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the mode that keeps the bytes of headers as they came (MSG_DO_EXTRACT_COPY), sofia-sip takes
 * the first line of a message from the wrong place if empty lines stand before it, as keepalives
 * do (RFC 5626 section 3.5.1): the copy that is parsed begins with them and ends too early. Both
 * classes of first lines get a parser here that looks at what was received instead.
 */
#include "parser.h"

#include <stdlib.h>
#include <string.h>

#include <sofia-sip/msg.h>
#include <sofia-sip/msg_header.h>
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
    }
    return class;
}
