# SPDX-License-Identifier: Apache-2.0
# On a fresh Debian 12, as root: `make demo` and `make check` install what is missing by themselves.

# ---- packages: the one list --------------------------------------------------------------------
PACKAGES_BUILD = apache2-bin apache2-dev
PACKAGES_LOAD  = libcurl4-openssl-dev openssl python3 siege slowhttptest
PACKAGES_CHECK = check clang clang-format clang-tidy cppcheck curl libclang-rt-14-dev nghttp2-client \
                 pkg-config util-linux valgrind
PACKAGES_BENCH = wrk

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

.DELETE_ON_ERROR:
.PHONY: all build install uninstall clean demo check check-only unit lint format bench \
        packages-build packages-load packages-check packages-bench

all: packages-build build
build: $(B)/mod_seven.so $(B)/libseven.a

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
packages-build: ; $(call need,$(PACKAGES_BUILD))
packages-load: packages-build ; $(call need,$(PACKAGES_LOAD))
packages-check: packages-load ; $(call need,$(PACKAGES_CHECK))
packages-bench: packages-load ; $(call need,$(PACKAGES_BENCH))

# ---- what is built -----------------------------------------------------------------------------
$(B)/core/%.o: seven_core/%.c $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(C11) -Wpedantic $(CFLAGS) -fPIC -c $< -o $@

$(B)/libseven.a: $(CORE:seven_core/%.c=$(B)/core/%.o)
	$(AR) rcs $@ $^

$(B)/mod_seven.so: mod_seven.c $(HEADERS) $(B)/libseven.a
	$(CC) $(HTTPD) $(C11) -D_GNU_SOURCE $(CFLAGS) -fPIC -shared $< $(B)/libseven.a -lm -lpthread -o $@

$(B)/webbots: $(wildcard bench/webbots*.[ch])
	@mkdir -p $(@D)
	$(CC) $(C11) -D_GNU_SOURCE $(CFLAGS) $(filter %.c,$^) -lcurl -lm -o $@

$(B)/admit: bench/admit.c $(B)/libseven.a
	$(CC) $(C11) -D_GNU_SOURCE $(CFLAGS) -Iseven_core $< $(B)/libseven.a -lm -o $@

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

clean:
	rm -rf $(B)

# ---- demo, tests, benchmarks -------------------------------------------------------------------
demo: packages-load
	@$(MAKE) -s build $(B)/webbots
	@$(PYTHON) bench/demo.py

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

TSAN = race pool table
unit: $(UNITS:%=$(B)/t/%) $(UNITS:%=$(B)/t-asan/%) $(TSAN:%=$(B)/t-tsan/%)

check: packages-check
	@$(MAKE) -s -j2 build $(B)/webbots $(B)/asan/mod_seven.so unit
	@$(PYTHON) t/run.py

lint: packages-check
	@$(PYTHON) t/run.py lint

format:
	clang-format -i mod_seven.c seven_core/*.[ch] bench/*.[ch] t/*.[ch]

bench: packages-bench
	@$(MAKE) -s build $(B)/webbots $(B)/admit
	$(B)/admit
	$(PYTHON) bench/http.py all
