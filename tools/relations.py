"""Corrections made of relations: what one may ask about a person, a company, a place, a work, ...

A line of a relations file (bench/natural/relations_*.jsonl) has a relation and the ways to ask for
it, with {} where the subject's name goes. A correction made of it asks for the relation of a
subject with a made-up name, or one of the "names" that a line of its kind lists; its wordings are
the other ways, its neighbours ask the same about others, and the questions about the same subject
come from the other relations of its kind.

A line of bench/natural/groups.jsonl has questions that differ little in their words and much in
what they ask: "meanings", each a list of ways to ask for one thing, or a grid of things, ways to
ask and words that change ("by"). A correction made of it asks for one meaning; its neighbours
differ from it in one of the three.
"""
import random

LATIN = ("ba be bo bra bri da del den do dra fa fel fi ga gel gor gri ha hel il ja ka kel kor kri "
         "la len li lo lu ma mel mi mo mor na nel ni no nor o ol or pa pel pi quo ra rel ri ro sa sel "
         "sha si so ta tel ti to tor tra u va vel vi vo wa wen za zel zi").split()
PERSON = ("Anna Ben Carla Dmitri Elena Farid Greta Hugo Irene Jonas Karim Lena Marco Nadia Olaf "
          "Priya Quentin Rosa Samir Tilda Umar Vera Walter Xenia Yusuf Zoe").split()
FAMILY = ("Abara Bergman Castillo Dubois Eriksen Fontana Gupta Hoffmann Ivanov Jansen Kowalski "
          "Larsen Moreau Novak Okafor Petrov Quiroga Rossi Schmidt Tanaka Ulrich Vasquez Weber "
          "Yilmaz").split()
PARTS = {
    "company": (("Harlow Nordwind Silva Brightwater Kestrel Umbra Delta Orchid Pioneer Atlas Granite "
                 "Lumen Meridian Copper Falcon Vega").split(),
                "Works|Foods|Labs|& Sons|Systems|Bakery|Logistics|Studio|Clinic|Bank|Motors".split("|")),
    "place": (("Port New San Lower East Lake Fort Bad Monte Old").split(),
              "Avel Berin Cordo Darmow Elmstad Farrow Gontal Hasten Ilmen Jurro".split()),
    "work": (("The Silent Winter Orchard|A House of Salt|Northern Letters|The Glass Ferryman|Red Harvest "
              "Moon|Nine Doors|The Last Lighthouse|Songs for a Small City|Paper Tigers|Under the Linden "
              "Bridge|Ashes and Amber|The Clockmaker's Debt|Blue Hour|Shadow of the Heron").split("|"),
             ["", "", "", "II", "Returns"]),
    "device": ("Aero Nova Zen Pro Maxi Turbo Clear Sonic Terra Volt".split(),
               "X1 200 Mini 3000 S 7 Plus 12 Air Z4".split()),
    "food": (("grandma's|Aunt Rosa's|the house|Uncle Beppo's|the canteen's").split("|"),
             "lentil soup|apple cake|goulash|curry|fish stew|dumplings|bean salad|plum jam".split("|")),
}
HAN = {
    "person": ("王李张刘陈杨赵黄周吴徐孙马朱胡林郭何高罗郑梁", "伟芳娜敏静丽强磊军洋勇艳杰涛明超霞平刚桂英文华玉兰"),
    "company": ("云海星宏达泰安瑞丰恒盛信源启晨远", ["科技", "食品", "银行", "物流", "诊所", "书店", "酒店", "工厂"]),
    "place": ("青云白沙龙石临安平湖长山东江西岭", ["镇", "市", "县", "岛", "村", "国"]),
    "work": ("春秋夜雪风花月影孤城远灯长河", ["之歌", "往事", "传", "物语", "的梦"]),
    "device": ("星云极光飞鹰银河青龙", ["手机", "耳机", "路由器", "相机", "手表", "打印机"]),
    "food": ("张妈李婶外婆王叔小店", ["饺子", "红烧肉", "鱼汤", "豆腐", "面条", "年糕"]),
}
SURNAMES = "佐藤 鈴木 高橋 田中 伊藤 渡辺 山本 中村 小林 加藤 吉田 山田 佐々木 松本 井上".split()
GIVEN = "さん 健太 美咲 翔 陽菜 大輔 さくら 直樹 由美 拓也".split()
KANA = "アイウエオカキクケコサシスセソタチツテトナニネノハヒフマミモラリルレロワンガギグゴザジダデドバビブボ"
JAPANESE = {
    "company": ["商店", "電機", "食品", "銀行", "運輸", "病院", "出版"], "place": ["市", "町", "村", "島", "国"],
    "work": ["の歌", "物語", "の夢", ""],
    "device": ["カメラ", "イヤホン", "ルーター", "時計", "プリンター"],
    "food": ["うどん", "カレー", "煮物", "味噌汁", "漬物"],
}


def invented(rng):
    name = "".join(rng.choice(LATIN) for _ in range(rng.choice((2, 3, 3, 4))))
    return name.capitalize()


def han_name(kind, rng):
    first, second = HAN.get(kind, HAN["place"])
    start = "".join(rng.sample(first, 1 if kind == "person" else 2))
    if kind == "person":
        return start + "".join(rng.sample(second, rng.choice((1, 2))))
    return start + rng.choice(second)


def japanese_name(kind, rng):
    kana = "".join(rng.choice(KANA) for _ in range(rng.choice((3, 4))))
    if kind == "person":
        return rng.choice((rng.choice(SURNAMES) + rng.choice(GIVEN), kana, kana + "さん"))
    start = rng.choice((kana, rng.choice(SURNAMES)))
    return start + rng.choice(JAPANESE.get(kind, [""]))


def name(kind, lang, rng):
    if lang in ("zh", "ja") and rng.random() < 0.85:
        return han_name(kind, rng) if lang == "zh" else japanese_name(kind, rng)
    if kind == "person" and rng.random() < 0.5:
        return rng.choice((rng.choice(PERSON), rng.choice(PERSON) + " " + rng.choice(FAMILY)))
    if kind in PARTS and rng.random() < 0.6:
        first, second = PARTS[kind]
        return (rng.choice(first) + " " + rng.choice(second)).strip()
    return invented(rng)


def resembling(text, kind, lang, listed, rng):
    """Another name, sometimes with a part of this one."""
    if listed:
        return rng.choice([other for other in listed if other != text])
    while True:
        other = name(kind, lang, rng)
        if " " in text and rng.random() < 0.3:
            parts = text.split(" ")
            parts[rng.randrange(len(parts))] = invented(rng)
            other = " ".join(parts)
        elif " " not in text and len(text) > 4 and text.isascii() and rng.random() < 0.3:
            other = text[:2] + invented(rng).lower()
        if other != text:
            return other


def corrections(relations, each, seed=11):
    """`each` corrections of every relation, in the form of bench/natural's lines. A relation may
    stand in several files."""
    rng, out, kinds, merged, names = random.Random(seed), [], {}, {}, {}
    for r in relations:
        names.setdefault((r["lang"], r["kind"]), []).extend(r.get("names", []))
        key = r["lang"], r["kind"], r["relation"]
        asks = merged.setdefault(key, dict(r, asks=[]))["asks"]
        asks += [t for t in r["asks"] if t not in asks]
    relations = list(merged.values())
    for r in relations:
        kinds.setdefault((r["lang"], r["kind"]), []).append(r)
    for r in relations:
        kind, lang = r["kind"], r["lang"]
        others = [o for o in kinds[lang, kind] if o is not r]
        listed = names[lang, kind]
        another = lambda text: resembling(text, kind, lang, listed, rng)
        for _ in range(each):
            subject = rng.choice(listed) if listed else name(kind, lang, rng)
            asks = rng.sample(r["asks"], min(8, len(r["asks"])))
            near = [rng.choice(r["asks"]).format(another(subject)) for _ in range(3)]
            near.append(asks[0].format(another(subject)))
            about = [rng.choice(o["asks"]).format(subject)
                     for o in rng.sample(others, min(4, len(others)))]
            out.append({"class": f"relation {kind}", "lang": lang,
                        "question": asks[0].format(subject), "answer": invented(rng),
                        "wordings": [t.format(subject) for t in asks[1:]],
                        "neighbours": near, "same_subject": about or near})
    return out


def across(relations, each, seed=17):
    """Corrections asked for in other languages than the one they were taught in, of relations that
    stand in several; names are the same in all of them."""
    rng, merged, out = random.Random(seed), {}, []
    listed = {r["kind"] for r in relations if r.get("names")}
    for r in relations:
        if r["kind"] not in listed:
            languages = merged.setdefault(r["kind"], {}).setdefault(r["relation"], {})
            languages.setdefault(r["lang"], []).extend(r["asks"])
    for kind, of_kind in merged.items():
        for relation, asks in of_kind.items():
            others = [o for o in of_kind if o != relation and len(of_kind[o]) > 1]
            for _ in range(each if len(asks) > 1 and others else 0):
                taught = rng.choice(sorted(asks))
                foreign = lambda o: [x for x in sorted(of_kind[o]) if x != taught] or [taught]
                ask = lambda o, name: rng.choice(of_kind[o][rng.choice(foreign(o))]).format(name)
                subject = name(kind, "en", rng)
                another = lambda: resembling(subject, kind, "en", [], rng)
                out.append({"class": f"across {kind}", "lang": "mixed",
                            "question": rng.choice(asks[taught]).format(subject),
                            "answer": invented(rng),
                            "wordings": sorted({ask(relation, subject) for _ in range(4)}),
                            "neighbours": [ask(relation, another()) for _ in range(3)],
                            "same_subject": [ask(o, subject) for o in some(rng, others, 4)]})
    return out


def some(rng, texts, n):
    return rng.sample(texts, min(n, len(texts)))


def correction(line, rng, asks, near, about):
    return {"class": f"near {line['kind']}", "lang": line["lang"], "question": asks[0],
            "answer": invented(rng), "wordings": asks[1:], "neighbours": near,
            "same_subject": about}


def of_meanings(line, rng):
    for meaning in line["meanings"]:
        others = [t for m in line["meanings"] if m is not meaning for t in m]
        for _ in range(3):
            near = some(rng, others, 10)
            yield correction(line, rng, some(rng, meaning, 6), near[:6], near[6:] or near)


def of_grid(line, each, rng):
    fill = lambda way, by, thing, k: line["ways"][way][k].replace("{}", thing).format(**by)

    def any_of(way, by, thing):
        return fill(way, by, thing, rng.randrange(len(line["ways"][way])))
    ways, bys, things = list(line["ways"]), line["by"], line["things"]
    for _ in range(each):
        way, by, thing = rng.choice(ways), rng.choice(bys), rng.choice(things)
        order = some(rng, range(len(line["ways"][way])), 6)
        asks = [fill(way, by, thing, k) for k in order]
        other_bys = some(rng, [x for x in bys if x is not by], 4)
        other_ways = [x for x in ways if x != way]
        other_things = [x for x in things if x != thing]
        near = [fill(way, x, thing, order[0]) for x in other_bys[:2]]
        near += [any_of(way, x, thing) for x in other_bys]
        near += [fill(way, by, rng.choice(other_things), order[0])]
        about = [any_of(x, by, thing) for x in some(rng, other_ways, 2)]
        about += [any_of(rng.choice(ways), x, thing) for x in other_bys[:2]]
        yield correction(line, rng, asks, near, about)


def of_groups(lines, each, seed=13):
    """`each` corrections of every grid, three of every meaning."""
    rng = random.Random(seed)
    return [x for line in lines
            for x in (of_meanings(line, rng) if "meanings" in line else of_grid(line, each, rng))]
