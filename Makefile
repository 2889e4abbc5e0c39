# SPDX-License-Identifier: Apache-2.0
# On a fresh Debian 12, as root: `make demo` and `make check` install what is missing by themselves.

# ---- packages: the one list --------------------------------------------------------------------
PACKAGES_HTTPD = apache2-bin apache2-dev
PACKAGES_SIP   = liblmdb-dev libmicrohttpd-dev libsofia-sip-ua-dev libssl-dev pkg-config
PACKAGES_LOAD  = libcurl4-openssl-dev openssl python3 siege slowhttptest
PACKAGES_CALLS = kamailio python3 sip-tester
PACKAGES_CHECK = check clang clang-format clang-tidy cppcheck curl groff-base libclang-rt-14-dev mandoc \
                 maude nghttp2-client util-linux valgrind
PACKAGES_BENCH = wrk
PACKAGES_SIM   = gnuplot-nox python3

# ---- tools -------------------------------------------------------------------------------------
CC       = gcc
APXS     = apxs
PYTHON   = /usr/bin/python3
B        = build
WARN     = -Wall -Wextra -Wshadow -Wconversion -Werror
CFLAGS   = -O2 -g
CORE     = $(wildcard seven_core/*.c)
HEADERS  = $(wildcard seven_core/*.h)
# httpd's flags, asked of apxs when they are needed. Its headers count as the system's: the warnings
# are for our code.
HTTPD    = $$($(APXS) -q CFLAGS) $$($(APXS) -q EXTRA_CPPFLAGS) -isystem $$($(APXS) -q INCLUDEDIR) \
           -isystem $$($(APXS) -q APR_INCLUDEDIR) -I.
C11      = -std=c11 $(WARN)
SIP      = $(patsubst sip_ext/%.c,%,$(wildcard sip_ext/*.c))
SIP_H    = $(wildcard sip_ext/*.h)
SIP_C    = $(C11) -D_GNU_SOURCE -Iseven_core -Isip_ext \
           $$(pkg-config --cflags sofia-sip-ua | sed 's/-I/-isystem /g')
SIP_LIBS = $$(pkg-config --libs sofia-sip-ua lmdb libmicrohttpd openssl) -lm -lpthread
SANITIZE = -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all

.DELETE_ON_ERROR:
.PHONY: all httpd sip build install uninstall install-sip uninstall-sip clean demo demo-sip check unit \
        lint format bench bench-sip sim packages-httpd packages-sip packages-load packages-calls \
        packages-check packages-bench packages-sim bench-asterisk

# The module, and its library. `make sip` builds the SIP proxy, which needs other packages.
all: packages-httpd httpd
httpd: $(B)/mod_seven.so $(B)/libseven.a
sip: packages-sip $(B)/seven-sip
build: httpd $(B)/seven-sip

# Installs the packages in $(1) that are missing.
define need
@missing=$$(for p in $(1); do dpkg-query -W -f '$${Status}\n' $$p 2>/dev/null \
  | grep -q 'ok installed' || echo $$p; done); \
if [ -n "$$missing" ]; then \
  if [ $$(id -u) != 0 ]; then \
    echo "These packages are missing: $$missing. Install them, or run this as root." | tr '\n' ' '; \
    echo; exit 1; fi; \
  echo "Installing" $$missing; \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
    --no-install-recommends $$missing >/dev/null; fi
endef
packages-httpd: ; $(call need,$(PACKAGES_HTTPD))
packages-sip: ; $(call need,$(PACKAGES_SIP))
packages-load: packages-httpd ; $(call need,$(PACKAGES_LOAD))
packages-check: packages-load packages-calls ; $(call need,$(PACKAGES_CHECK))
packages-bench: packages-load ; $(call need,$(PACKAGES_BENCH))
packages-sim: ; $(call need,$(PACKAGES_SIM))
# Kamailio's package would start it, now and at each boot: its service stays off.
packages-calls: packages-sip
	$(call need,$(filter-out kamailio,$(PACKAGES_CALLS)))
	@dpkg-query -W -f '$${Status}\n' kamailio 2>/dev/null | grep -q 'ok installed' && exit 0; \
	if [ $$(id -u) != 0 ]; then \
	  echo "This package is missing: kamailio. Install it, or run this as root."; exit 1; fi; \
	echo "Installing kamailio (its service stays off)"; \
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then \
	  trap "rm -f $$policy" EXIT; printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; fi; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	  --no-install-recommends kamailio >/dev/null && update-rc.d kamailio disable

# ---- what is built -----------------------------------------------------------------------------
$(B)/core/%.o: seven_core/%.c $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(C11) -Wpedantic $(CFLAGS) -fPIC -c $< -o $@

$(B)/libseven.a: $(CORE:seven_core/%.c=$(B)/core/%.o)
	$(AR) rcs $@ $^

$(B)/mod_seven.so: mod_seven.c $(HEADERS) $(B)/libseven.a
	$(CC) $(HTTPD) $(C11) -D_GNU_SOURCE $(CFLAGS) -fPIC -shared $< $(B)/libseven.a -lm -lpthread -o $@

$(B)/sip/%.o: sip_ext/%.c $(SIP_H) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIP_C) $(CFLAGS) -c $< -o $@

$(B)/seven-sip: $(SIP:%=$(B)/sip/%.o) $(B)/libseven.a
	$(CC) $^ $(SIP_LIBS) -o $@

$(B)/webbots: $(wildcard bench/webbots*.[ch])
	@mkdir -p $(@D)
	$(CC) $(C11) -D_GNU_SOURCE $(CFLAGS) $(filter %.c,$^) -lcurl -lm -o $@

$(B)/admit: bench/admit.c $(B)/libseven.a
	$(CC) $(C11) -D_GNU_SOURCE $(CFLAGS) -Iseven_core $< $(B)/libseven.a -lm -o $@

$(B)/seven-sim: $(wildcard bench/sim*.[ch]) $(HEADERS) $(B)/libseven.a
	$(CC) $(C11) -D_GNU_SOURCE $(CFLAGS) -Iseven_core $(filter %.c,$^) $(B)/libseven.a \
	  -lm -lpthread -o $@

# Decisions of the core, for t/model to compare its own with.
$(B)/conform: t/conform.c $(HEADERS) $(B)/libseven.a
	$(CC) $(C11) -D_GNU_SOURCE $(CFLAGS) -Iseven_core $< $(B)/libseven.a -lm -o $@

# For tests of servers that are slow themselves.
$(B)/mod_slow.so: t/mod_slow.c
	$(CC) $(HTTPD) $(C11) $(CFLAGS) -fPIC -shared $< -o $@

# ---- install -----------------------------------------------------------------------------------
A2 = $(DESTDIR)/etc/apache2

install: all
	@install -D -m 644 $(B)/mod_seven.so $(DESTDIR)$$($(APXS) -q LIBEXECDIR)/mod_seven.so
	@if [ -d $(A2)/mods-available ]; then \
	  install -m 644 conf/seven.load conf/seven.conf $(A2)/mods-available; \
	  echo "Installed. Turn it on: a2enmod seven && apachectl configtest && apachectl graceful"; \
	else echo "Installed. There is no $(A2)/mods-available: see conf/seven.load and conf/seven.conf."; fi

# What enables it goes too, or httpd would not start any more.
uninstall:
	rm -f $(DESTDIR)$$($(APXS) -q LIBEXECDIR)/mod_seven.so \
	  $(A2)/mods-enabled/seven.load $(A2)/mods-enabled/seven.conf \
	  $(A2)/mods-available/seven.load $(A2)/mods-available/seven.conf

# The systemd unit has the place of the program in it.
PREFIX = /usr/local
install-sip: sip
	@install -D -m 755 $(B)/seven-sip $(DESTDIR)$(PREFIX)/sbin/seven-sip
	@install -D -m 644 conf/seven-sip.8 $(DESTDIR)$(PREFIX)/share/man/man8/seven-sip.8
	@install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)/etc
	@sed 's,/usr/local/,$(PREFIX)/,' conf/seven-sip.service \
	  > $(DESTDIR)$(PREFIX)/lib/systemd/system/seven-sip.service
	@if [ ! -e $(DESTDIR)/etc/seven-sip.conf ]; then \
	  install -m 644 conf/seven-sip.conf $(DESTDIR)/etc; fi
	@echo "Installed. Set server and calls in /etc/seven-sip.conf, then: systemctl enable --now seven-sip"

# The configuration is its user's by now, and stays.
uninstall-sip:
	rm -f $(DESTDIR)$(PREFIX)/sbin/seven-sip $(DESTDIR)$(PREFIX)/share/man/man8/seven-sip.8 \
	  $(DESTDIR)$(PREFIX)/lib/systemd/system/seven-sip.service

clean:
	rm -rf $(B)

# ---- demo, tests, benchmarks -------------------------------------------------------------------
demo: packages-load
	@$(MAKE) -s httpd $(B)/webbots
	@$(PYTHON) bench/demo.py

demo-sip: packages-calls
	@$(MAKE) -s $(B)/seven-sip
	@$(PYTHON) bench/demo_sip.py

# sip_ext under the sanitizers.
$(B)/sip-asan/%.o: sip_ext/%.c $(SIP_H) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIP_C) $(SANITIZE) -c $< -o $@
$(B)/asan/seven-sip: $(SIP:%=$(B)/sip-asan/%.o) $(CORE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIP_C) $(SANITIZE) $(filter %.c %.o,$^) $(SIP_LIBS) -o $@

UNITS = $(patsubst t/test_%.c,%,$(wildcard t/test_*.c))
UNIT  = $(C11) -D_GNU_SOURCE -g -Iseven_core
$(B)/t/%: t/test_%.c $(wildcard t/*.h) $(CORE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(UNIT) -O1 $< $(CORE) $$(pkg-config --cflags --libs check) -lm -lpthread -o $@
# The same under AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer.
$(B)/t-asan/%: t/test_%.c $(wildcard t/*.h) $(CORE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(UNIT) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all $< $(CORE) \
	  $$(pkg-config --cflags --libs check) -lm -lpthread -o $@
$(B)/t-tsan/%: t/test_%.c $(wildcard t/*.h) $(CORE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(UNIT) -O1 -fsanitize=thread $< $(CORE) \
	  $$(pkg-config --cflags --libs check) -lm -lpthread -o $@
$(B)/asan/mod_seven.so: mod_seven.c $(CORE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(HTTPD) $(C11) -D_GNU_SOURCE -O1 -g -fno-omit-frame-pointer -fPIC -shared \
	  -fsanitize=address,undefined -fno-sanitize-recover=all $< $(CORE) -lm -lpthread -o $@

# The tests of sip_ext, with what SIP_OF_name lists of it, or else with all.
SIP_OF_call    = call flow siphash slab
SIP_OF_flow    = flow siphash
SIP_OF_config  = address certificate config config_live exempt log
SIP_OF_figures = figures log
SIP_OF_log     = log
SIP_OF_store   = log store
sip_of = $(patsubst %,$(B)/$(1)/%.o,$(or $(SIP_OF_$(2)),$(filter-out main,$(SIP))))
.SECONDEXPANSION:
$(B)/t/sip_%: t/test_sip_%.c t/unit.h $(B)/libseven.a $$(call sip_of,sip,$$*)
	@mkdir -p $(@D)
	$(CC) $(SIP_C) -O1 -g $(filter %.c %.o,$^) $(B)/libseven.a $$(pkg-config --cflags --libs check) \
	  $(SIP_LIBS) -o $@
$(B)/t-asan/sip_%: t/test_sip_%.c t/unit.h $(CORE) $(HEADERS) $$(call sip_of,sip-asan,$$*)
	@mkdir -p $(@D)
	$(CC) $(SIP_C) $(SANITIZE) $(filter %.c %.o,$^) $$(pkg-config --cflags --libs check) $(SIP_LIBS) -o $@

# The fuzzer: $(B)/fuzz_sip -max_total_time=SECONDS. libFuzzer is clang's.
FUZZ = -O1 -g -Wno-error -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
$(B)/fuzz_sip: t/fuzz_sip.c $(filter-out sip_ext/main.c,$(SIP:%=sip_ext/%.c)) $(SIP_H) $(CORE) $(HEADERS)
	@mkdir -p $(@D)
	clang $(SIP_C) $(FUZZ) $(filter %.c,$^) $(SIP_LIBS) -o $@

TSAN = race pool sequence table
unit: $(UNITS:%=$(B)/t/%) $(UNITS:%=$(B)/t-asan/%) $(TSAN:%=$(B)/t-tsan/%)

check: packages-check
	@$(MAKE) -s -j2 build $(B)/webbots $(B)/conform $(B)/seven-sim $(B)/mod_slow.so $(B)/asan/mod_seven.so $(B)/asan/seven-sip $(B)/fuzz_sip unit
	@$(PYTHON) t/run.py

lint: packages-check
	@$(PYTHON) t/run.py lint

format:
	clang-format -i mod_seven.c seven_core/*.[ch] sip_ext/*.[ch] bench/*.[ch] t/*.[ch]

bench: packages-bench
	@$(MAKE) -s httpd $(B)/webbots $(B)/admit
	$(B)/admit
	$(PYTHON) bench/http.py all

bench-sip: packages-calls
	@$(MAKE) -s $(B)/seven-sip
	$(PYTHON) bench/sip.py all

# Asterisk is Debian 11's, by debootstrap, in $(B)/bullseye.
bench-asterisk: packages-calls
	@$(MAKE) -s $(B)/seven-sip
	$(PYTHON) bench/asterisk.py

# Simulates all again (about half an hour on two cores), draws the plots in build/sim, and writes the
# tables of bench/SIMULATION.md and bench/COMPARISON.md.
sim: packages-sim
	@$(MAKE) -s $(B)/seven-sim
	$(PYTHON) bench/simulate.py
	$(PYTHON) bench/compare.py
