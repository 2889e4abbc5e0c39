/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "address.h"
#include "parse.h"

const char *config_transport_name(enum config_transport transport)
{
    static const char *const names[] = {"udp", "tcp", "tls"};

    return names[transport];
}

socklen_t config_address_length(const config_address *a)
{
    return a->ipv6 ? sizeof(a->sockaddr.in6) : sizeof(a->sockaddr.in);
}

bool address_parse(const char *text, uint16_t port, config_address *a)
{
    bool ipv6 = text[0] == '[';
    const char *host = text + ipv6;
    size_t length = strcspn(host, ipv6 ? "]" : ":");
    const char *rest = host + length;
    long number = port;

    if (length >= sizeof(a->host) || (ipv6 && *rest++ != ']')) {
        return false;
    }
    if (*rest == ':' ? !seven_parse_number(rest + 1, 1, 65535, &number)
                     : *rest != '\0' || port == 0) {
        return false;
    }
    memcpy(a->host, host, length);
    a->host[length] = '\0';
    a->port = (uint16_t)number;
    a->ipv6 = ipv6;
    memset(&a->sockaddr, 0, sizeof(a->sockaddr));
    if (ipv6) {
        a->sockaddr.in6.sin6_family = AF_INET6;
        a->sockaddr.in6.sin6_port = htons(a->port);
        return inet_pton(AF_INET6, a->host, &a->sockaddr.in6.sin6_addr) == 1;
    }
    a->sockaddr.in.sin_family = AF_INET;
    a->sockaddr.in.sin_port = htons(a->port);
    return inet_pton(AF_INET, a->host, &a->sockaddr.in.sin_addr) == 1;
}

bool address_is_loopback(const config_address *a)
{
    return a->ipv6 ? IN6_IS_ADDR_LOOPBACK(&a->sockaddr.in6.sin6_addr)
                   : ntohl(a->sockaddr.in.sin_addr.s_addr) >> 24 == 127;
}

const char *address_not_unicast(const config_address *a)
{
    if (a->ipv6) {
        const struct in6_addr *in6 = &a->sockaddr.in6.sin6_addr;

        return IN6_IS_ADDR_UNSPECIFIED(in6) ? "an address that others can be told: no wildcard"
               : IN6_IS_ADDR_MULTICAST(in6) ? "the address of one machine: no multicast"
               : IN6_IS_ADDR_V4MAPPED(in6)  ? "written as IPv4, as it is one"
               : IN6_IS_ADDR_LINKLOCAL(in6) ? "more than link-local"
                                            : NULL;
    }
    in_addr_t in = ntohl(a->sockaddr.in.sin_addr.s_addr);

    return in == INADDR_ANY ? "an address that others can be told: no wildcard"
           : in >> 28 >= 14 ? "the address of one machine: no multicast, no broadcast"
                            : NULL;
}

bool address_equal(const config_address *a, const config_address *b)
{
    if ((a->transport == CONFIG_UDP) != (b->transport == CONFIG_UDP) || a->ipv6 != b->ipv6 ||
        a->port != b->port) {
        return false;
    }
    return a->ipv6 ? IN6_ARE_ADDR_EQUAL(&a->sockaddr.in6.sin6_addr, &b->sockaddr.in6.sin6_addr)
                   : a->sockaddr.in.sin_addr.s_addr == b->sockaddr.in.sin_addr.s_addr;
}

int address_try(const config_address *a)
{
    int on = 1, result = 0;
    int fd = socket(a->sockaddr.any.sa_family,
                    (a->transport == CONFIG_UDP ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return errno;
    }
    if ((a->ipv6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0) ||
        /* Connections that linger there from before do not matter. */
        (a->transport != CONFIG_UDP &&
         setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) ||
        bind(fd, &a->sockaddr.any, config_address_length(a)) != 0 ||
        (a->transport != CONFIG_UDP && listen(fd, 1) != 0)) {
        result = errno;
    }
    close(fd);
    return result;
}
