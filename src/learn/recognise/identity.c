#include "learn/recognise/identity.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "text/unicode.h"

enum { MOST = 200 }; /* bytes of the longest question, its marks apart from their letters */

/* A text a language: in lower case, one space between words, without punctuation. */
static const char *const questions[] = {
    "|who are you|who r u|who are u|who exactly are you|what is your name|what s your name|"
    "whats your name|whats ur name|your name|tell me your name|"
    "tell me who you are|say your name|what are you called|how are you called|"
    "what should i call you|what can i call you|what do i call you|what shall i call you|"
    "do you have a name|have you got a name|may i ask your name|may i know your name|"
    "who am i talking to|who am i speaking to|who am i speaking with|introduce yourself|"
    "could you introduce yourself|can you introduce yourself|",
    "|wer bist du|wie heißt du|wie heisst du|wie ist dein name|was ist dein name|"
    "wie lautet dein name|dein name|sag mir deinen namen|nenn mir deinen namen|"
    "sag mir wer du bist|wie nennt man dich|wie soll ich dich nennen|hast du einen namen|"
    "mit wem spreche ich|mit wem rede ich|stell dich vor|"
    "stelle dich vor|kannst du dich vorstellen|",
    "|quién eres|quien eres|quién es usted|quien es usted|cómo te llamas|como te llamas|"
    "cómo se llama usted|como se llama usted|cuál es tu nombre|cual es tu nombre|tu nombre|"
    "dime tu nombre|dime quién eres|dime quien eres|dime cómo te llamas|cómo te puedo llamar|"
    "cómo puedo llamarte|tienes nombre|tienes un nombre|con quién hablo|con quien hablo|"
    "con quién estoy hablando|preséntate|presentate|puedes presentarte|",
    "|qui es tu|qui êtes vous|tu es qui|t es qui|vous êtes qui|comment tu t appelles|"
    "comment t appelles tu|tu t appelles comment|comment vous appelez vous|"
    "vous vous appelez comment|quel est ton nom|quel est votre nom|c est quoi ton nom|"
    "ton nom|dis moi ton nom|dis moi qui tu es|comment dois je t appeler|"
    "comment je peux t appeler|as tu un nom|tu as un nom|à qui je parle|"
    "à qui est ce que je parle|avec qui je parle|présente toi|peux tu te présenter|"
    "tu peux te présenter|",
    "|chi sei|come ti chiami|qual è il tuo nome|qual e il tuo nome|il tuo nome|"
    "dimmi il tuo nome|dimmi chi sei|hai un nome|come posso chiamarti|come devo chiamarti|"
    "con chi parlo|con chi sto parlando|presentati|puoi presentarti|",
    "|quem é você|quem é voce|quem és tu|qual é o seu nome|qual é o teu nome|qual é seu nome|"
    "como você se chama|como te chamas|seu nome|me diga seu nome|diz me o teu nome|"
    "você tem nome|tens nome|com quem estou falando|com quem falo|apresente se|apresenta te|",
    "|wie ben je|wie ben jij|wie bent u|hoe heet je|hoe heet jij|hoe heet u|wat is je naam|"
    "wat is jouw naam|wat is uw naam|je naam|zeg me je naam|vertel me wie je bent|"
    "hoe moet ik je noemen|hoe mag ik je noemen|heb je een naam|met wie praat ik|"
    "met wie spreek ik|stel jezelf voor|",
    "|кто ты|ты кто|кто вы|вы кто|как тебя зовут|как вас зовут|тебя как зовут|как твоё имя|"
    "как твое имя|какое у тебя имя|твоё имя|твое имя|назови своё имя|скажи кто ты|"
    "скажи как тебя зовут|как мне тебя называть|как тебя называть|у тебя есть имя|"
    "с кем я говорю|с кем я разговариваю|представься|",
    "|あなたは誰ですか|あなたは誰|あなた誰|君は誰|君は誰ですか|どなたですか|"
    "あなたはどなたですか|あなたの名前は|あなたの名前は何ですか|あなたのお名前は|"
    "あなたのお名前は何ですか|名前は|名前は何|名前は何ですか|お名前は|お名前は何ですか|"
    "お名前を教えてください|名前を教えて|名前を教えてください|あなたの名前を教えて|"
    "あなたの名前を教えてください|何という名前ですか|君の名前は|何て呼べばいい|"
    "何と呼べばいいですか|自己紹介して|自己紹介してください|",
    "|你是谁|您是谁|你是誰|你叫什么|你叫什么名字|你叫什麼名字|您叫什么名字|你的名字是什么|"
    "你的名字是什麼|你的名字叫什么|你的名字|你名字是什么|你名字叫什么|告诉我你的名字|"
    "告诉我你是谁|您怎么称呼|怎么称呼你|怎么称呼您|"
    "我该怎么称呼你|我怎么称呼你|你有名字吗|我在和谁说话|我在跟谁说话|介绍一下你自己|"
    "自我介绍一下|自我介绍|做个自我介绍|",
    "|너는 누구야|넌 누구야|누구세요|당신은 누구입니까|당신은 누구세요|너 이름이 뭐야|"
    "네 이름이 뭐야|네 이름은 뭐야|이름이 뭐야|이름이 뭐예요|이름이 무엇입니까|"
    "당신의 이름은 무엇입니까|당신의 이름은 무엇인가요|이름을 알려줘|이름을 말해줘|"
    "뭐라고 불러야 해|뭐라고 부르면 돼|자기소개 해줘|자기소개해줘|자기소개 해주세요|",
};

/* What such a question may have beside its words, at the end or anywhere else. */
static const char *const courtesies[RVI_COUNT(questions)] = {
    "| please|please |",
    "| bitte|bitte |",
    "| por favor|por favor |",
    "| s il te plaît|s il te plaît | s il vous plaît|s il vous plaît |",
    "| per favore|per favore |",
    "| por favor|por favor |",
    "| alsjeblieft|alsjeblieft | alstublieft|alstublieft |",
    "| пожалуйста|пожалуйста |",
    "|すみませんが |すみません |",
    "|请问|请|",
    "| 좀|",
};

/* "|a text as they are|" */
static rv_status simplify(rvi_buf *out, const char *text, size_t len, rv_error *err)
{
    rvi_buf plain = {0};
    char bytes[4];
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t c;
        used = rvi_utf8_decode(text + i, len - i, &c, NULL);
        if (rvi_char_alnum(c) || rvi_unicode_combining_class(c))
            rvi_buf_append(&plain, bytes, rvi_utf8_encode(rvi_unicode_to_lower(c), bytes));
        else if (plain.len && plain.data[plain.len - 1] != ' ')
            rvi_buf_putc(&plain, ' ');
    }
    while (plain.len && plain.data[plain.len - 1] == ' ') plain.len--;
    rvi_buf_putc(out, '|');
    rv_status st = plain.failed ? rvi_nomem(err, "question") : RV_OK;
    if (!st) st = rvi_unicode_normalize(RVI_NFC, plain.data, plain.len, out, err);
    if (!st && !rvi_buf_puts(out, "|")) st = rvi_nomem(err, "question");
    rvi_buf_deinit(&plain);
    return st;
}

/* Whatever is left must be a whole question of the table, so nothing else is lost by chance. */
static void take_out(char *text, const char *these)
{
    char one[64], *at = NULL;
    for (size_t n; !at && (n = strcspn(++these, "|")) > 0; these += n) {
        memcpy(one, these, n);
        one[n] = 0;
        at = strstr(text, one);
        if (at) memmove(at, at + n, strlen(at + n) + 1);
    }
}

rv_status rvi_identity_asked(const char *text, size_t len, int *out, rv_error *err)
{
    rvi_buf plain = {0};
    char bare[MOST];
    *out = 0;
    if (len >= MOST) return RV_OK;
    rv_status st = simplify(&plain, text, len, err);
    bool fits = !st && plain.len > 2 && plain.len < MOST;
    for (size_t i = 0; fits && !*out && i < RVI_COUNT(questions); i++) {
        memcpy(bare, plain.data, plain.len + 1);
        take_out(bare, courtesies[i]);
        if (bare[1] != '|' && strstr(questions[i], bare)) *out = (int)i + 1;
    }
    rvi_buf_deinit(&plain);
    return st;
}
