/* Sockets that become the standard input of a program without the shim. The program is this one, linked
 * statically, and has a role. */
#include "check.h"
#include "past_shim.h"
#include <netinet/sctp.h>
#include <spawn.h>
#include <sys/stat.h>

extern char **environ;

/* No record of a pair is as long as much is. */
enum { MANY = 300, LONG_BYTES = 100000, MUCH_BYTES = 200000, TABLE = 64 };

static const char *service;

/* The roles of the other program. */

/* Numbers the lines that it reads. */
static int numbers(void)
{
    char line[64];
    for (int n = 1; fgets(line, sizeof line, stdin); n++) {
        printf("%d %s", n, line);
        fflush(stdout);
    }
    return 0;
}

/* Says its other arguments and a variable, and numbers the lines. */
static int says_words(int count, char **words)
{
    const char *mark = getenv("MARK");
    for (int n = 2; n < count; n++)
        printf("%s ", words[n]);
    printf("%s\n", mark ? mark : "none");
    fflush(stdout);
    return numbers();
}

/* Answers one line, and ends. */
static int one_line(void)
{
    char line[64];
    return fgets(line, sizeof line, stdin) && printf("got %s", line) > 0 && fflush(stdout) == 0 ? 0 : 1;
}

/* Answers one line where it comes from. */
static int line_on(int fd)
{
    char line[64];
    ssize_t n = read(fd, line, sizeof line);
    return n > 0 && dprintf(fd, "got %.*s", (int)n, line) > 0 ? 0 : 1;
}

/* Writes much at once, and then answers one line. */
static int much(void)
{
    static char content[MUCH_BYTES];
    fill(content, sizeof content, 5);
    return write(1, content, sizeof content) == sizeof content ? one_line() : 1;
}

/* Reads so many bytes, and says what they add up to. */
static int sum(size_t bytes)
{
    unsigned char place[4096];
    unsigned long total = 0;
    while (bytes > 0) {
        ssize_t n = read(0, place, sizeof place);
        if (n <= 0 || (size_t)n > bytes)
            return 1;
        for (ssize_t i = 0; i < n; i++)
            total = total * 31 + place[i];
        bytes -= n;
    }
    printf("%lu\n", total);
    return 0;
}

/* Expects this text, byte by byte if the end lies behind it, and the end. */
static int rest(const char *text)
{
    for (; *text; text++) {
        char byte;
        if (read(0, &byte, 1) != 1 || byte != *text)
            return 1;
    }
    char byte;
    return read(0, &byte, 1) == 0 ? 0 : 2;
}

static int with_role(int count, char **words)
{
    const char *role = words[1];
    alarm(30);
    if (strcmp(role, "numbers") == 0)
        return numbers();
    if (strcmp(role, "words") == 0)
        return says_words(count, words);
    if (strcmp(role, "one-line") == 0)
        return one_line();
    if (strcmp(role, "line-on") == 0 && count > 2)
        return line_on(atoi(words[2]));
    if (strcmp(role, "much") == 0)
        return much();
    if (strcmp(role, "sum") == 0 && count > 2)
        return sum(strtoul(words[2], NULL, 10));
    if (strcmp(role, "rest") == 0 && count > 2)
        return rest(words[2]);
    if (strcmp(role, "launch") == 0 && count > 2)
        execv(words[2], (char *[]){words[2], "aware", NULL});
    return 1;
}

/* Makes a child of a socket by `how`: it has the socket as its standard input and output. */
static pid_t begun(int fd, char how, char *role, char *more)
{
    char *words[] = {(char *)service, role, more, NULL};
    pid_t child;
    if (how == 's' || how == 'p') {
        posix_spawn_file_actions_t actions;
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
        CHECK((how == 's' ? posix_spawn : posix_spawnp)(&child, service, &actions, NULL, words, environ) == 0);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
        return child;
    }
    child = how == 'v' ? vfork() : fork();
    if (child == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        if (how == 'x')
            execvp(service, words);
        if (how == 'a')
            execveat(open("/", O_PATH), service + 1, words, environ, 0);
        if (how == 'd')
            execveat(open(service, O_PATH), "", words, environ, AT_EMPTY_PATH);
        execve(service, words, environ);
        _exit(1);
    }
    CHECK(child > 0);
    return child;
}

static void comes(int fd, const char *expected)
{
    char place[64];
    for (size_t got = 0; got < strlen(expected);) {
        ssize_t n = recv(fd, place, sizeof place, 0);
        CHECK(n > 0 && got + n <= strlen(expected) && memcmp(place, expected + got, n) == 0);
        got += n;
    }
}

static void subscribe(int fd)
{
    struct sctp_event_subscribe events = {.sctp_data_io_event = 1, .sctp_association_event = 1, .sctp_shutdown_event = 1};
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) == 0);
}

/* A message with the stream and the number that it was sent with. */
static void send_on(int fd, int stream, uint32_t ppid, const char *text)
{
    char room[CMSG_SPACE(sizeof(struct sctp_sndrcvinfo))] = {0};
    struct iovec part = {(char *)text, strlen(text)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_SCTP;
    c->cmsg_type = SCTP_SNDRCV;
    c->cmsg_len = CMSG_LEN(sizeof(struct sctp_sndrcvinfo));
    struct sctp_sndrcvinfo info = {.sinfo_stream = stream, .sinfo_ppid = ppid};
    memcpy(CMSG_DATA(c), &info, sizeof info);
    CHECK(sendmsg(fd, &m, 0) == (ssize_t)strlen(text));
}

static int comes_on(int fd, int stream, uint32_t ppid, const char *text)
{
    char room[CMSG_SPACE(sizeof(struct sctp_sndrcvinfo))], place[64];
    struct iovec part = {place, sizeof place};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t n = recvmsg(fd, &m, 0);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    struct sctp_sndrcvinfo info = {0};
    if (!c || c->cmsg_type != SCTP_SNDRCV)
        return 0;
    memcpy(&info, CMSG_DATA(c), sizeof info);
    return n == (ssize_t)strlen(text) && memcmp(place, text, n) == 0 && info.sinfo_stream == stream && info.sinfo_ppid == ppid;
}

/* However the program is executed; what lay there is read first, and the end comes when the association ends. */
static void each_way(void)
{
    const char ways[] = {'f', 'v', 'x', 's', 'p', 'a', 'd'};
    for (size_t i = 0; i < sizeof ways; i++) {
        int client, server;
        joined(6100 + i, &client, &server);
        CHECK(send(client, "one\n", 4, 0) == 4 && send(client, "two\n", 4, 0) == 4);
        CHECK(polls(server, POLLIN, 10000) == POLLIN);
        pid_t child = begun(server, ways[i], "numbers", NULL);
        CHECK(close(server) == 0);
        comes(client, "1 one\n2 two\n");
        CHECK(send(client, "three\n", 6, 0) == 6);
        comes(client, "3 three\n");
        CHECK(shutdown(client, SHUT_WR) == 0 && ended_well(child));
        close(client);
    }
}

/* Arguments one by one, more than registers hold. */
static void with_listed_arguments(void)
{
    const char *const said[] = {"a b c d e f g h none\n", "a b c d e f g h none\n", "a b c d e f g h seen\n"};
    char *environment[] = {"MARK=seen", NULL};
    for (int way = 0; way < 3; way++) {
        int client, server;
        joined(6108 + way, &client, &server);
        CHECK(send(client, "one\n", 4, 0) == 4 && polls(server, POLLIN, 10000) == POLLIN);
        pid_t child = fork();
        if (child == 0) {
            dup2(server, 0);
            dup2(server, 1);
            if (way == 0)
                execl(service, service, "words", "a", "b", "c", "d", "e", "f", "g", "h", NULL);
            else if (way == 1)
                execlp(service, service, "words", "a", "b", "c", "d", "e", "f", "g", "h", NULL);
            else
                execle(service, service, "words", "a", "b", "c", "d", "e", "f", "g", "h", NULL, environment);
            _exit(1);
        }
        CHECK(close(server) == 0);
        comes(client, said[way]);
        comes(client, "1 one\n");
        CHECK(shutdown(client, SHUT_WR) == 0 && ended_well(child));
        close(client);
    }
}

/* Notifications, the rest of a message, messages that share a record, and long ones: of all that the content is read. */
static void all_that_lay_there(void)
{
    static char content[LONG_BYTES];
    unsigned long total = 0;
    size_t bytes = 0;
    char word[32], count[32];
    int client, server;
    joined(6112, &client, &server);
    subscribe(server);
    CHECK(send(client, "hello", 5, 0) == 5 && read(server, word, 2) == 2);
    for (const char *rest = "llo"; *rest; rest++, bytes++)
        total = total * 31 + (unsigned char)*rest;
    for (int n = 0; n < MANY; n++) {
        int length = snprintf(word, sizeof word, "message %d", n);
        CHECK(send(client, word, length, 0) == length);
        for (int i = 0; i < length; i++, bytes++)
            total = total * 31 + (unsigned char)word[i];
    }
    for (int n = 0; n < 3; n++) {
        fill(content, sizeof content, n);
        CHECK(send(client, content, sizeof content, 0) == (ssize_t)sizeof content);
        for (size_t i = 0; i < sizeof content; i++, bytes++)
            total = total * 31 + (unsigned char)content[i];
    }
    snprintf(count, sizeof count, "%zu", bytes);
    pid_t child = begun(server, 'f', "sum", count);
    snprintf(word, sizeof word, "%lu\n", total);
    comes(client, word);
    CHECK(ended_well(child));
    close(server);
    close(client);
}

/* One write is one message, however long. */
static void writes_much(void)
{
    static char expected[MUCH_BYTES], place[MUCH_BYTES];
    int client, server, whole;
    joined(6115, &client, &server);
    fill(expected, sizeof expected, 5);
    pid_t child = begun(server, 'f', "much", NULL);
    CHECK(close(server) == 0);
    CHECK(receive(client, place, sizeof place, 0, &whole) == sizeof place && whole);
    CHECK(memcmp(place, expected, sizeof place) == 0);
    CHECK(send(client, "one\n", 4, 0) == 4);
    comes(client, "got one\n");
    CHECK(ended_well(child));
    close(client);
}

/* The socket as standard output or error only, or as the latter through the former. */
static void on_other_descriptors(void)
{
    const struct {
        char how, *number;
    } ways[] = {{'f', "1"}, {'f', "2"}, {'s', "1"}, {'s', "2"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *words[] = {(char *)service, "line-on", ways[i].number, NULL};
        int client, server, null = open("/dev/null", O_RDONLY | O_CLOEXEC), number = atoi(ways[i].number);
        joined(6125 + i, &client, &server);
        CHECK(null >= 0 && send(client, "one\n", 4, 0) == 4 && polls(server, POLLIN, 10000) == POLLIN);
        pid_t child;
        if (ways[i].how == 's') {
            posix_spawn_file_actions_t actions;
            CHECK(posix_spawn_file_actions_init(&actions) == 0);
            CHECK(posix_spawn_file_actions_adddup2(&actions, null, 0) == 0);
            CHECK(posix_spawn_file_actions_adddup2(&actions, server, 1) == 0);
            CHECK(number == 1 || posix_spawn_file_actions_adddup2(&actions, 1, number) == 0);
            CHECK(posix_spawn(&child, service, &actions, NULL, words, environ) == 0);
            CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
        } else if ((child = fork()) == 0) {
            dup2(null, 0);
            dup2(server, number);
            execve(service, words, environ);
            _exit(1);
        }
        comes(client, "got one\n");
        CHECK(ended_well(child));
        close(null);
        close(client);
        close(server);
    }
}

/* Opens files until only so many descriptors are free. */
static void fill_table(int left)
{
    const struct rlimit limit = {TABLE, TABLE};
    int fd, last = -1;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        last = fd;
    CHECK(errno == EMFILE);
    for (int n = 0; n < left; n++)
        CHECK(close(last - n) == 0);
}

/* A message that changes its form, in either direction, is not lost when hardly a descriptor is left. */
static void with_few_descriptors(int left)
{
    static char content[LONG_BYTES];
    unsigned long total = 0;
    char word[512], count[32];
    int client, server;
    joined(6116 + left, &client, &server);
    fill(content, sizeof content, 9);
    for (const char *first = "first"; *first; first++)
        total = total * 31 + (unsigned char)*first;
    for (size_t i = 0; i < sizeof content; i++)
        total = total * 31 + (unsigned char)content[i];
    CHECK(send(client, "first", 5, 0) == 5 && send(client, content, sizeof content, 0) == sizeof content);
    CHECK(polls(server, POLLIN, 10000) == POLLIN);
    pid_t reader = fork();
    if (reader == 0) {
        char *words[] = {(char *)service, "sum", count, NULL};
        snprintf(count, sizeof count, "%zu", 5 + sizeof content);
        dup2(server, 0);
        dup2(server, 1);
        fill_table(left);
        execve(service, words, environ);
        _exit(1);
    }
    snprintf(word, sizeof word, "%lu\n", total);
    comes(client, word);
    CHECK(ended_well(reader));

    send_on(client, 2, 9, "lies there plain");
    send_on(client, 2, 9, "and this");
    CHECK(polls(server, POLLIN, 10000) == POLLIN);
    reader = fork();
    if (reader == 0) {
        alarm(30);
        fill_table(left);
        CHECK(read(server, word, sizeof word) == 16 && memcmp(word, "lies there plain", 16) == 0);
        CHECK(read(server, word, sizeof word) == 8 && memcmp(word, "and this", 8) == 0);
        exit(0);
    }
    CHECK(ended_well(reader));
    close(client);
    close(server);
}

/* A peer that has ended before the program begins: it reads what is left, and the end. */
static void after_the_end(void)
{
    const char ways[] = {'f', 'v', 's'};
    for (size_t i = 0; i < sizeof ways; i++) {
        int client, server;
        joined(6120 + i, &client, &server);
        CHECK(send(client, "all of ", 7, 0) == 7 && send(client, "it", 2, 0) == 2 && close(client) == 0);
        CHECK(polls(server, POLLRDHUP, 10000) & POLLRDHUP);
        pid_t child = begun(server, ways[i], "rest", "all of it");
        CHECK(ended_well(child));
        close(server);
    }
}

/* A program that is not executed after all changes nothing but for what lay there, which has lost its stream. */
static void not_executed(const char *forbidden)
{
    int client, server;
    joined(6130, &client, &server);
    subscribe(server);
    send_on(client, 0, 0, "before");
    CHECK(polls(server, POLLIN, 10000) == POLLIN);
    pid_t child = fork();
    if (child == 0) {
        dup2(server, 0);
        FAILS(execve(forbidden, (char *[]){(char *)forbidden, NULL}, environ), EACCES);
        CHECK(comes_on(0, 0, 0, "before") && send(0, "more", 4, 0) == 4 && comes_on(0, 2, 9, "after"));
        exit(0);
    }
    comes(client, "more");
    send_on(client, 2, 9, "after");
    CHECK(ended_well(child));
    close(client);
    close(server);
}

/* A sharer of the socket reads on after the program, with streams and notifications. */
static void shared(void)
{
    int client, server;
    char word[512];
    joined(6140, &client, &server);
    subscribe(server);
    send_on(client, 3, 7, "plain\n");
    pid_t child = begun(server, 'f', "one-line", NULL);
    comes(client, "got plain\n");
    CHECK(ended_well(child));
    send_on(client, 2, 9, "lies there plain");
    CHECK(polls(server, POLLIN, 10000) == POLLIN && read(server, word, sizeof word) == 16);
    send_on(client, 2, 9, "aware");
    CHECK(comes_on(server, 2, 9, "aware"));
    CHECK(close(client) == 0);
    int whole;
    CHECK(receive(server, word, sizeof word, 0, &whole) > 0);
    CHECK(((union sctp_notification *)word)->sn_header.sn_type == SCTP_SHUTDOWN_EVENT);
    close(server);
}

/* Content stays plain if the end lies behind it: whatever the first call is, the kernel serves it and the later ones. */
static void plain_for_good(void)
{
    enum { READ, RECVMSG, FIONREAD_FIRST, UNSEEN_NUMBER, FIRST_CALLS };
    for (int first = 0; first < FIRST_CALLS; first++) {
        static const char text[] = "lies there plain";
        const ssize_t length = strlen(text);
        int client, server, bytes, whole;
        char word[64];
        joined(6160 + first, &client, &server);
        CHECK(send(client, "one\n", 4, 0) == 4);
        pid_t child = begun(server, 'f', "one-line", NULL);
        comes(client, "got one\n");
        CHECK(ended_well(child));
        send_on(client, 2, 9, text);
        CHECK(close(client) == 0 && polls(server, POLLRDHUP, 10000) & POLLRDHUP);
        int fd = first == UNSEEN_NUMBER ? (int)past_shim(SYS_dup, server, 0, 0, 0, 0, 0) : server;
        CHECK(fd >= 0);
        CHECK(first != FIONREAD_FIRST || (ioctl(fd, FIONREAD, &bytes) == 0 && bytes == length));
        ssize_t n = first == RECVMSG ? receive(fd, word, sizeof word, 0, &whole) : read(fd, word, sizeof word);
        CHECK(n == length && memcmp(word, text, length) == 0);
        CHECK(read(fd, word, sizeof word) == 0);
        if (fd != server)
            close(fd);
        close(server);
    }
}

/* A program with the shim that one without it has executed. */
static int aware(void)
{
    struct sctp_event_subscribe events = {.sctp_data_io_event = 1};
    if (setsockopt(0, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) != 0 || write(1, "ready", 5) != 5)
        return 1;
    return comes_on(0, 2, 9, "aware") ? 0 : 1;
}

static void launched(const char *self)
{
    int client, server;
    joined(6150, &client, &server);
    pid_t child = begun(server, 'f', "launch", (char *)self);
    CHECK(close(server) == 0);
    comes(client, "ready");
    send_on(client, 2, 9, "aware");
    CHECK(ended_well(child));
    close(client);
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "aware") == 0)
        return aware();
    if (count > 1 && strcmp(words[1], "drive") != 0)
        return with_role(count, words);
    CHECK(count == 4);
    service = words[2];
    begin();
    each_way();
    with_listed_arguments();
    all_that_lay_there();
    writes_much();
    on_other_descriptors();
    for (int left = 0; left < 3; left++)
        with_few_descriptors(left);
    after_the_end();
    not_executed(words[3]);
    shared();
    plain_for_good();
    launched(words[0]);
    return 0;
}
