/* preload_command.c - the parts of an argument that the header keeps, and those it leaves out. */
#include <stdlib.h>
#include <string.h>

#include "control/command.h"
#include "unit.h"

/* Arguments separated by |, and the whole text that is kept, separated by blanks. */
static const struct {
    const char *arguments, *kept;
    unsigned left_out;
} rows[] = {
    {"python|train.py|--lr|0.1", "python train.py --lr 0.1", 0},
    {"x|--password=abc", "x --password=***", 1},
    {"x|--password=a b c|--lr|1", "x --password=*** --lr 1", 1},
    {"x|--password|a b c|--lr|1", "x --password *** --lr 1", 1},
    {"x|--password|--lr|1", "x --password --lr 1", 0},
    {"x|--password|-abc|--lr", "x --password *** --lr", 1},
    {"x|--password", "x --password", 0},
    {"x|--password|", "x --password ", 0},
    {"x|--password=", "x --password=", 0},
    {"x|-password|abc", "x -password ***", 1},
    {"x|--PassWord|abc", "x --PassWord ***", 1},
    {"x|--api-key|abc|--api_key=abc|--apiKey|abc|--apikey=abc",
     "x --api-key *** --api_key=*** --apiKey *** --apikey=***", 4},
    {"x|--hf_token|abc|--hftoken=abc|--tokens=abc", "x --hf_token *** --hftoken=*** --tokens=***", 3},
    {"x|--max_new_tokens=512|--maxTokens|512|--tokenizer=a|--keyframe|3|--author=me",
     "x --max_new_tokens=512 --maxTokens 512 --tokenizer=a --keyframe 3 --author=me", 0},
    {"x|--client-secret|abc|++trainer.secret=abc|--auth=u", "x --client-secret *** ++trainer.secret=*** --auth=***", 3},
    {"env|PASSWORD=a b|HF_TOKEN=abc|prog", "env PASSWORD=*** HF_TOKEN=*** prog", 2},
    {"docker|run|-eOPENAI_API_KEY=abc|image", "docker run -eOPENAI_API_KEY=*** image", 1},
    {"curl|-H|Authorization: Bearer abc|u", "curl -H Authorization: *** u", 1},
    {"curl|--header=Authorization: Basic abc def", "curl --header=Authorization: ***", 1},
    {"curl|-H|X-Api-Key: abc", "curl -H X-Api-Key: ***", 1},
    {"git|clone|https://me:abc@host/p.git", "git clone https://***@host/p.git", 1},
    {"git|clone|https://abc@host/p.git", "git clone https://***@host/p.git", 1},
    {"x|--db=postgres://u:p/w@h/db", "x --db=postgres://***@h/db", 1},
    {"x|me:abc@host", "x me:***@host", 1},
    {"x|git@host:path", "x git@host:path", 0},
    {"x|https://h/p?api_key=abc&n=1 next", "x https://h/p?api_key=*** next", 1},
    {"x|--config|{\"api_key\": \"a\\\"bc\", \"lr\": 1}", "x --config {\"api_key\": ***\", \"lr\": 1}", 1},
    {"x|{'token': 'a b', 'lr': 1}", "x {'token': ***', 'lr': 1}", 1},
    {"x|{token: a b, lr: 1}", "x {token: ***", 1},
    {"sh|-c|run --password abc --lr 1", "sh -c run --password *** --lr 1", 1},
    {"sh|-c|run --password 'a b' --lr 1", "sh -c run --password ***' --lr 1", 1},
    {"sh|-c|a; HF_TOKEN=abc run", "sh -c a; HF_TOKEN=*** run", 1},
    {"sh|-c|curl -H \"Authorization: Bearer abc\" u", "sh -c curl -H \"Authorization: ***\" u", 1},
    {"sh|-c|f '{\\\"secret\\\": \\\"abc\\\"}' u", "sh -c f '{\\\"secret\\\": ***\"}' u", 1},
    {"sh|-c|curl Bearer abc", "sh -c curl Bearer ***", 1},
    {"server: --hf_token abc --lr 1", "server: --hf_token *** --lr 1", 1},
    {"x|--pass\xff\xfe=1|\xffpassword=abc", "x --pass\xff\xfe=1 \xffpassword=***", 1},
    {"python|-c|import os; os.environ[\"HF_TOKEN\"] = \"abc\"; f()",
     "python -c import os; os.environ[\"HF_TOKEN\"] = ***\"; f()", 1},
    {"python|-c|os.putenv('HF_TOKEN', 'abc'); f()", "python -c os.putenv('HF_TOKEN', ***'); f()", 1},
    {"x|hf_0123456789abcdef|see sk-0123456789abcdef now|sk-short", "x *** see *** now sk-short", 2},
    {"x|https://h/p?X-Amz-Date=1&X-Amz-Signature=abc&n=1 next|h?sig=abc",
     "x https://h/p?X-Amz-Date=1&X-Amz-Signature=*** next h?sig=***", 2},
    {"x|a\nb\tc", "x a b c", 0},
    {"", "", 0},
};

START_TEST(test_rows)
{
    char line[512], shown[512];
    struct tfi_text to = {shown, sizeof shown - 1, 0, 0};
    unsigned left_out = 0;
    int more = 0;
    strcpy(line, rows[_i].arguments);
    for (char *rest = line, *word; (word = strsep(&rest, "|")) != NULL;) {
        if (word != line) tfi_text_bytes(&to, " ", 1);
        left_out += tfi_command_argument(&to, word, strlen(word), &more);
    }
    shown[to.used] = 0;
    ck_assert_str_eq(shown, rows[_i].kept);
    ck_assert_uint_eq(left_out, rows[_i].left_out);
}
END_TEST

/* With any bytes, no secret appears, and nothing outside the argument is read. */
START_TEST(test_any_bytes)
{
    static const char alphabet[] = "-=:@/ \"'\\{}&,ab\xff\nKey_token.";
    char shown[4096], *argument;
    srand((unsigned)_i + 1);
    for (int round = 0; round < 2000; round++) {
        size_t before = (size_t)rand() % 40, count = before + strlen("--password=hunter2");
        int more = rand() % 2;
        argument = malloc(count);
        for (size_t i = 0; i < before; i++) argument[i] = alphabet[(size_t)rand() % (sizeof alphabet - 1)];
        if (before) argument[before - 1] = ' ';
        memcpy(argument + before, "--password=hunter2", strlen("--password=hunter2"));
        struct tfi_text to = {shown, sizeof shown - 1, 0, 0};
        unsigned left_out = tfi_command_argument(&to, argument, count, &more);
        shown[to.used] = 0;
        ck_assert_msg(!strstr(shown, "hunter2"), "%.*s became %s", (int)count, argument, shown);
        ck_assert_uint_gt(left_out, 0);
        free(argument);
    }
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("command");
    tcase_add_loop_test(tests, test_rows, 0, sizeof rows / sizeof rows[0]);
    tcase_add_loop_test(tests, test_any_bytes, 0, 8);
    return unit_run(tests);
}
