--
-- Canonical form and digests, version 1
--
-- The values below are frozen.  They were not taken from this extension: the
-- texts come from exact decimal arithmetic and a sort by UTF-16 code units,
-- the hashes from another SHA-256.  A change of any of them is a new
-- digest_version, never a new expected file.
--
-- messages are not part of the contract, SQLSTATEs are
\set VERBOSITY sqlstate
-- for the rows that come out wrong: no padding, and all characters
\pset format unaligned
SET client_encoding = 'UTF8';

--
-- The golden table
--
CREATE TEMP TABLE golden (
	n int PRIMARY KEY,
	what text NOT NULL,
	input text NOT NULL,
	canonical text NOT NULL,
	digest text NOT NULL
);
INSERT INTO golden VALUES
(1, 'literal', 'null',
 'null',
 '74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b'),
(2, 'literal', ' true ',
 'true',
 'b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b44867e12b'),
(3, 'literal', 'false',
 'false',
 'fcbcf165908dd18a9e49f7ff27810176db8e9f63b4352213741664245224f8aa'),
(4, 'zero', '0',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(5, 'zero', '-0',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(6, 'zero', '0.0',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(7, 'zero', '-0.0',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(8, 'zero', '0.000000000000',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(9, 'zero', '0e0',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(10, 'zero', '-0e10',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(11, 'zero', '0E+400',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(12, 'zero', '-0e-400',
 '0',
 '5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9'),
(13, 'integer', '1',
 '1',
 '6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
(14, 'integer', '-1',
 '-1',
 '1bad6b8cf97131fceab8543e81f7757195fbb1d36b376ee994ad1cf17699c464'),
(15, 'integer', '100',
 '100',
 'ad57366865126e55649ecb23ae1d48887544976efea46a48eb5d85a6eeb4d306'),
(16, 'integer', '-100',
 '-100',
 'b96b3036632771349308fbbe5d7a3f3f762c9e8f3eedd5785b13ff322e05fd9d'),
(17, 'integer', '7',
 '7',
 '7902699be42c8a8e46fbbb4501726517e86b22c56a189f7625a6da49081b2451'),
(18, 'integer', '9999',
 '9999',
 '888df25ae35772424a560c7152a1de794440e0ea5cfee62828333a456a506e05'),
(19, 'integer', '10000',
 '10000',
 '39e5b4830d4d9c14db7368a95b65d5463ea3d09520373723430c03a5a453b5df'),
(20, 'integer', '10001',
 '10001',
 'e443169117a184f91186b401133b20be670c7c0896f9886075e5d9b81e9d076b'),
(21, 'integer', '99990000',
 '99990000',
 '34a620d2b95172e64c0c7bf2f4efb72be1793f57914b8010f759acf85974affc'),
(22, 'integer', '100000000',
 '100000000',
 'e59bbea6227c578f97fc467bc62dc3407d4885693d74e6e970f6cab44158fef4'),
(23, 'integer', '1.0',
 '1',
 '6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
(24, 'integer', '-1.000',
 '-1',
 '1bad6b8cf97131fceab8543e81f7757195fbb1d36b376ee994ad1cf17699c464'),
(25, 'integer', '1E0',
 '1',
 '6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
(26, 'integer', '100e-2',
 '1',
 '6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'),
(27, 'integer', '-12e1',
 '-120',
 '818cc17d93efa1cc6bf9e29be063ae436999e91d2feefab8fce93c5f7ea64901'),
(28, 'decimal', '4.50',
 '4.5',
 '32209ccbf8a8e509b9027698cc173343a2695e8ecdbe899bf5335a3100c956fc'),
(29, 'decimal', '-4.50',
 '-4.5',
 '28a54a8b18714a7369d93c1b4e179ab1eb0341e74ddee57b134c68ed633a9e9f'),
(30, 'decimal', '0.1',
 '0.1',
 '14be4b45f18e0d8c67b4f719b5144eee88497e413709d11d85b096d8e2346310'),
(31, 'decimal', '1.01',
 '1.01',
 'cb5d2011975d7a70e93f7cf9d2934fc752c4f1c5013a80cd34b8d2deb5ded6b0'),
(32, 'decimal', '1.010',
 '1.01',
 'cb5d2011975d7a70e93f7cf9d2934fc752c4f1c5013a80cd34b8d2deb5ded6b0'),
(33, 'decimal', '12345.6789e-3',
 '12.3456789',
 '8aab33da34b6afc60c80d5134b77b26b6f062f960330d742eeb5a9e36511a832'),
(34, 'decimal', '1.5E+1',
 '15',
 'e629fa6598d732768f7c726b4b621285f9c3b85303900aa912017db7617d8bdb'),
(35, 'decimal', '0.5e1',
 '5',
 'ef2d127de37b942baad06145e54b0c619a1f22327b2ebbcfbec78f5564afe39d'),
(36, 'decimal', '333333333.33333329',
 '333333333.33333329',
 '2fb055804e802dbfe5e2151dd2dcca21ef676c0764ea7b270e46fa159842daf2'),
(37, 'decimal', '0.1000000000000000055511151231257827',
 '0.1000000000000000055511151231257827',
 '38f41259b0d3afa1a6100f2f454accf6c8aaca0d066b0109ba4e04738136e851'),
(38, 'point inside a group', '1.2345',
 '1.2345',
 'a6f9e2f26dbb3072f78396bba0be9630b2d7baed868891239b2a9fa1be64b927'),
(39, 'point inside a group', '12.345',
 '12.345',
 '38e334a238998179099e4675b206d800372ec52a92e172a09541431bae5385a9'),
(40, 'point inside a group', '123.45',
 '123.45',
 '4ebc4a141b378980461430980948a55988fbf56f85d084ac33d8a8f61b9fab88'),
(41, 'point inside a group', '1234.5',
 '1234.5',
 '918261d679f95e7aa7aa0036b8efb34294e5c3b067925ce5ed034d4276380d89'),
(42, 'point inside a group', '12345.6',
 '12345.6',
 '5b92db31160d9a8375cb548f3688197612bc9650cbad57ba8416f08413c2d130'),
(43, 'point inside a group', '0.12345',
 '0.12345',
 '4db14f3f0035fd0b9072408f271a82ec5c33de70a2e45f575303e5d8b7290c1b'),
(44, 'point inside a group', '10000.0001',
 '10000.0001',
 '698b5b80b1de16e71d3cd3c126524867f9b89d8205eb00eb36adf615fba80a1f'),
(45, 'point inside a group', '10000.00001',
 '10000.00001',
 'f319cb8e5669175cc4d10f1eb137e3537c6a5e25a413d80f8324029d22562017'),
(46, 'point inside a group', '1000.001',
 '1000.001',
 '78e26830479520cd1df1f60c546328eaa3b5fd25ce713c416be218871cb49647'),
(47, 'point inside a group', '0.00010001',
 '0.00010001',
 '89d65e722aff4eebb28f499947a991db83ed0e06b256efad53b4db34353341bb'),
(48, 'point inside a group', '0.0101',
 '0.0101',
 '37ff10281b3b13be63356a6debc967e98e186e49b11b78c8fc814ff35a754fd3'),
(49, 'point inside a group', '99999999.99999999',
 '99999999.99999999',
 'edb3270191e545a10306e9b072eb01335aa8869ff61448f83b014ae2deb3de9d'),
(50, 'up to 21 digits', '1e20',
 '100000000000000000000',
 'c344e9487bfbd5c4e03c9fb90d62a5dde5e00b54d55c46e9f4a803aea162b80c'),
(51, 'up to 21 digits', '1e21',
 '1e+21',
 '241c4643fa70b1dcde1205b71be4e3bebb17e9f880c8e1a33d0ead6c27271d3c'),
(52, 'up to 21 digits', '1e22',
 '1e+22',
 '814a97daeb45416e24befc0ae9a6414ac2f41f269a9f2f019fc65a0d03725f34'),
(53, 'up to 21 digits', '-1e21',
 '-1e+21',
 'd1b781c586a6becc3c6bba876b259268cbead2c6085737f4799c2fd0607f55a4'),
(54, 'up to 21 digits', '123456789012345678901',
 '123456789012345678901',
 '84ed10bcfb6360d89f008e12f0bd488170552c2cc0858f86894190047e7f56a0'),
(55, 'up to 21 digits', '-123456789012345678901',
 '-123456789012345678901',
 '7a413c4d5f7fa8f32403124f4c951c3b6dcebfbb46eab0ad449e6d069e4d1e98'),
(56, 'up to 21 digits', '1234567890123456789012',
 '1.234567890123456789012e+21',
 '6306dd6f7126170fa8590f3323da88acac6d600cdfe9ce6be203ecf121576659'),
(57, 'up to 21 digits', '123456789012345678901.5',
 '123456789012345678901.5',
 '7695d37e5561efd81f5f24322a15086553c3efbfbdc443649cf8009f48752e06'),
(58, 'up to 21 digits', '1234567890123456789012.5',
 '1.2345678901234567890125e+21',
 '7c7459dc3e60fcca7ae190ab09f38b5dd3b33914fbe24919b8b2af09bf33a0bb'),
(59, 'up to 21 digits', '100000000000000000000',
 '100000000000000000000',
 'c344e9487bfbd5c4e03c9fb90d62a5dde5e00b54d55c46e9f4a803aea162b80c'),
(60, 'up to 21 digits', '1000000000000000000000',
 '1e+21',
 '241c4643fa70b1dcde1205b71be4e3bebb17e9f880c8e1a33d0ead6c27271d3c'),
(61, 'up to 21 digits', '999999999999999999999',
 '999999999999999999999',
 'ef16b8582c637bac75c84c78be80a8109af93451176ad74c36342bc04e985cf2'),
(62, 'up to 21 digits', '12300000000000000000000e-2',
 '123000000000000000000',
 '5f76b8b3ddfeed3654c4e25bda220f2f3cbaa34eb73fb01cc51df8b938ee4941'),
(63, 'up to 21 digits', '99999999999999999999.9',
 '99999999999999999999.9',
 '11f6a8682d073d66b24c610adc12f1f6ce6c56656509ac98ee8f1fcbb684e7db'),
(64, 'up to 21 digits', '1.234e20',
 '123400000000000000000',
 '3437728209dd5ae187256b1ce246ba49e8cb373c56fbda9128310a03e0c957e1'),
(65, 'up to 21 digits', '1.234e21',
 '1.234e+21',
 '47107eae6aeae1591a1e22acf5ee719181bed0533402c17ae40ebc4b8444b68e'),
(66, 'down to 6 zeros', '0.00001',
 '0.00001',
 '661710915adfa7c40b5dbd6b2122dfa65b1accb57a8b7cdee05423ecfe14b0c7'),
(67, 'down to 6 zeros', '0.000001',
 '0.000001',
 '159fb29a827ad04b260aa6c8ab6d8637f8f2b38af5c4f3cb49d6a21205e040f8'),
(68, 'down to 6 zeros', '0.0000001',
 '1e-7',
 '5b33e02f2c5103a05d32f6ba9cb058294452bfbf393967f68bb30c1bdcbbab22'),
(69, 'down to 6 zeros', '1e-6',
 '0.000001',
 '159fb29a827ad04b260aa6c8ab6d8637f8f2b38af5c4f3cb49d6a21205e040f8'),
(70, 'down to 6 zeros', '1e-7',
 '1e-7',
 '5b33e02f2c5103a05d32f6ba9cb058294452bfbf393967f68bb30c1bdcbbab22'),
(71, 'down to 6 zeros', '-1e-7',
 '-1e-7',
 '48113218bfca2aac308c535f12c50222d0b564be656573126bb5dc63386cc95e'),
(72, 'down to 6 zeros', '0.00000123',
 '0.00000123',
 'ffc64b1104ccac57cf5fa084360c245a4aada2e4d26499352b05164fe5220a01'),
(73, 'down to 6 zeros', '0.000000123',
 '1.23e-7',
 '60880613bdf523cf9e6d60ae163612a08794d2a0655ed01072c0d2c6d5ca451b'),
(74, 'down to 6 zeros', '0.00000999999',
 '0.00000999999',
 '01b317b08963569f23aeb836df0fcc31a75ebddecaa49c40be657776d1686980'),
(75, 'down to 6 zeros', '123e-8',
 '0.00000123',
 'ffc64b1104ccac57cf5fa084360c245a4aada2e4d26499352b05164fe5220a01'),
(76, 'down to 6 zeros', '123e-9',
 '1.23e-7',
 '60880613bdf523cf9e6d60ae163612a08794d2a0655ed01072c0d2c6d5ca451b'),
(77, 'down to 6 zeros', '1.5e-10',
 '1.5e-10',
 '34a63020a470f9ae5ef4d8a545d3bca2b7f364e6452cc5c9396afb7896654c0e'),
(78, 'beyond a double', '9007199254740991',
 '9007199254740991',
 'f40b423c2dd95ff2b2f027e22208f438cf7242862e5e746860e697308c9add26'),
(79, 'beyond a double', '9007199254740992',
 '9007199254740992',
 'c681da39d7273a6a24c15c9cac3a75526ff2ecf8ba4ee60346a0c70c8163bdb2'),
(80, 'beyond a double', '9007199254740993',
 '9007199254740993',
 'a1c367c29158357e62a3ff5d3e800fb7698a22396439dbc0a9d4929322afd35d'),
(81, 'beyond a double', '-9007199254740993',
 '-9007199254740993',
 '7d7aaf1cc7ba0797dd856e1f40fc9f3dd00d70b497e32fb6493faaa587b90435'),
(82, 'beyond a double', '9007199254740993.0',
 '9007199254740993',
 'a1c367c29158357e62a3ff5d3e800fb7698a22396439dbc0a9d4929322afd35d'),
(83, 'beyond a double', '18446744073709551615',
 '18446744073709551615',
 '2cdb26265b4dc65e3b44d694f121fd6de99b9e4b8ae7f08d84bfa9537635ae43'),
(84, 'beyond a double', '18446744073709551616',
 '18446744073709551616',
 '8b292fc2d32f1fd491784610c61b90dc4632a6e4add19261eca4c3979e4ea6d2'),
(85, 'beyond a double', '0.30000000000000004',
 '0.30000000000000004',
 '06bad31060c1212ae832de4c031f7b31e3b48aed57858294478cb19450cf34ca'),
(86, 'beyond a double', '0.300000000000000044',
 '0.300000000000000044',
 '338f0530646b8f4ebb581820b94e386e0250744dcb36eee31ccf45e02fac96fc'),
(87, 'beyond a double', '5e-324',
 '5e-324',
 'c46e7ca1be4c8734f373a56530787288fa2058d73d07855e9247e949f811a42a'),
(88, 'beyond a double', '1.7976931348623157e308',
 '1.7976931348623157e+308',
 'c2784e1abd6317452708f3fbf9641c16b959561bc621a1d408c23a20aa2cb585'),
(89, 'beyond a double', '1e309',
 '1e+309',
 'ec3700bf59548395d2c1f2c43aaedad40cf437b053cd537bc7debfa09bb440e5'),
(90, 'beyond a double', '2.5e-400',
 '2.5e-400',
 'abea5ce4ec4350961dadff52c6a5191203e369bf7d9b0e4b840f6e7bfe89ccce'),
(91, 'beyond a double', '1.5e300',
 '1.5e+300',
 'ba5b9d007ed3bac3aed4e53fff4395ec6e034ab008e90969287e3b8860c31b12'),
(92, 'beyond a double', '-1.50E+300',
 '-1.5e+300',
 'f3aa1f36226223c6fd98486c0a026f1002b687d586de5cdd4b6a0947241d5501'),
(93, 'ends of numeric', '1e131071',
 '1e+131071',
 'c112d9b82ac79d88f44b2ed3b8299853a9dd9886f8c0ed206d250a7806b0c7ba'),
(94, 'ends of numeric', '-1e131071',
 '-1e+131071',
 'f200b86874f8ed47f7bcc8da74c4573671911582a251ccb6aaae5da9bb728f4c'),
(95, 'ends of numeric', '10e131070',
 '1e+131071',
 'c112d9b82ac79d88f44b2ed3b8299853a9dd9886f8c0ed206d250a7806b0c7ba'),
(96, 'ends of numeric', '9.75e131071',
 '9.75e+131071',
 'e928c13eb1e3da113cf9124fc01d8e1e961899f1e0dca2bd0aa58ff6ea948e6d'),
(97, 'ends of numeric', '1e-16383',
 '1e-16383',
 'ffad032b25c4d06d0f06f8dfb4ba2b1bfa5ba6f8fb7ead515e8be3329cc578fd'),
(98, 'ends of numeric', '-25e-16383',
 '-2.5e-16382',
 '985b75db352f73193f63decca318ee9e3940da10213ecc8d89e1fdeaa776ca85'),
(99, 'ends of numeric', '12345678.9e-1000',
 '1.23456789e-993',
 '8fcd24a2c65c63b28fa4b9a73fc6c31a23b92ca05a0bf9aff55b69acd36874a7'),
(100, 'ends of numeric', '123456789e1000',
 '1.23456789e+1008',
 '042022d1fbb41627b92365ac39ab437bd11ebd01fe5ed76c8e240baf4348828f'),
(101, 'ends of numeric', '12345e1001',
 '1.2345e+1005',
 'cdc786046a8a33975646286579bacbd8264b9c471b8708dfb1025687ad01fbb6'),
(102, 'ends of numeric', '12345e1002',
 '1.2345e+1006',
 'd711dd6cefe845655c8d95cef06de1e25b5a115dbe9fc0985f17f680144d4c2e'),
(103, 'ends of numeric', '12345e1003',
 '1.2345e+1007',
 'bbd893499d92ecd1c03e23ca97fac86d07e8ec700bfaf02994c895bca8e7c76a'),
(104, 'every alignment of 1', '[1e-26,1e-25,1e-24,1e-23,1e-22,1e-21,1e-20,1e-19,1e-18,1e-17,1e-16,1e-15,1e-14,1e-13,1e-12,1e-11,1e-10,1e-9,1e-8,1e-7,1e-6,1e-5,1e-4,1e-3,1e-2,1e-1,1e0,1e1,1e2,1e3,1e4,1e5,1e6,1e7,1e8,1e9,1e10,1e11,1e12,1e13,1e14,1e15,1e16,1e17,1e18,1e19,1e20,1e21,1e22]',
 '[1e-26,1e-25,1e-24,1e-23,1e-22,1e-21,1e-20,1e-19,1e-18,1e-17,1e-16,1e-15,1e-14,1e-13,1e-12,1e-11,1e-10,1e-9,1e-8,1e-7,0.000001,0.00001,0.0001,0.001,0.01,0.1,1,10,100,1000,10000,100000,1000000,10000000,100000000,1000000000,10000000000,100000000000,1000000000000,10000000000000,100000000000000,1000000000000000,10000000000000000,100000000000000000,1000000000000000000,10000000000000000000,100000000000000000000,1e+21,1e+22]',
 '515ede8f7bb328a198cb764020dbd355ac7907b17fb922daf26bf3bc299b572b'),
(105, 'every alignment of 98765', '[98765e-26,98765e-25,98765e-24,98765e-23,98765e-22,98765e-21,98765e-20,98765e-19,98765e-18,98765e-17,98765e-16,98765e-15,98765e-14,98765e-13,98765e-12,98765e-11,98765e-10,98765e-9,98765e-8,98765e-7,98765e-6,98765e-5,98765e-4,98765e-3,98765e-2,98765e-1,98765e0,98765e1,98765e2,98765e3,98765e4,98765e5,98765e6,98765e7,98765e8,98765e9,98765e10,98765e11,98765e12,98765e13,98765e14,98765e15,98765e16,98765e17,98765e18,98765e19,98765e20,98765e21,98765e22]',
 '[9.8765e-22,9.8765e-21,9.8765e-20,9.8765e-19,9.8765e-18,9.8765e-17,9.8765e-16,9.8765e-15,9.8765e-14,9.8765e-13,9.8765e-12,9.8765e-11,9.8765e-10,9.8765e-9,9.8765e-8,9.8765e-7,0.0000098765,0.000098765,0.00098765,0.0098765,0.098765,0.98765,9.8765,98.765,987.65,9876.5,98765,987650,9876500,98765000,987650000,9876500000,98765000000,987650000000,9876500000000,98765000000000,987650000000000,9876500000000000,98765000000000000,987650000000000000,9876500000000000000,98765000000000000000,987650000000000000000,9.8765e+21,9.8765e+22,9.8765e+23,9.8765e+24,9.8765e+25,9.8765e+26]',
 'fd2980f1a1788406b07baf9f240b8f9736aad75ab149abb2f808c5063a01d88d'),
(106, 'every alignment of 10001', '[10001e-26,10001e-25,10001e-24,10001e-23,10001e-22,10001e-21,10001e-20,10001e-19,10001e-18,10001e-17,10001e-16,10001e-15,10001e-14,10001e-13,10001e-12,10001e-11,10001e-10,10001e-9,10001e-8,10001e-7,10001e-6,10001e-5,10001e-4,10001e-3,10001e-2,10001e-1,10001e0,10001e1,10001e2,10001e3,10001e4,10001e5,10001e6,10001e7,10001e8,10001e9,10001e10,10001e11,10001e12,10001e13,10001e14,10001e15,10001e16,10001e17,10001e18,10001e19,10001e20,10001e21,10001e22]',
 '[1.0001e-22,1.0001e-21,1.0001e-20,1.0001e-19,1.0001e-18,1.0001e-17,1.0001e-16,1.0001e-15,1.0001e-14,1.0001e-13,1.0001e-12,1.0001e-11,1.0001e-10,1.0001e-9,1.0001e-8,1.0001e-7,0.0000010001,0.000010001,0.00010001,0.0010001,0.010001,0.10001,1.0001,10.001,100.01,1000.1,10001,100010,1000100,10001000,100010000,1000100000,10001000000,100010000000,1000100000000,10001000000000,100010000000000,1000100000000000,10001000000000000,100010000000000000,1000100000000000000,10001000000000000000,100010000000000000000,1.0001e+21,1.0001e+22,1.0001e+23,1.0001e+24,1.0001e+25,1.0001e+26]',
 '1fc1fd39483a1df2fc9e80629ada1cd551020430ab56308e4a0d6dce121a5e6d'),
(107, 'every alignment of 100000001', '[100000001e-26,100000001e-25,100000001e-24,100000001e-23,100000001e-22,100000001e-21,100000001e-20,100000001e-19,100000001e-18,100000001e-17,100000001e-16,100000001e-15,100000001e-14,100000001e-13,100000001e-12,100000001e-11,100000001e-10,100000001e-9,100000001e-8,100000001e-7,100000001e-6,100000001e-5,100000001e-4,100000001e-3,100000001e-2,100000001e-1,100000001e0,100000001e1,100000001e2,100000001e3,100000001e4,100000001e5,100000001e6,100000001e7,100000001e8,100000001e9,100000001e10,100000001e11,100000001e12,100000001e13,100000001e14,100000001e15,100000001e16,100000001e17,100000001e18,100000001e19,100000001e20,100000001e21,100000001e22]',
 '[1.00000001e-18,1.00000001e-17,1.00000001e-16,1.00000001e-15,1.00000001e-14,1.00000001e-13,1.00000001e-12,1.00000001e-11,1.00000001e-10,1.00000001e-9,1.00000001e-8,1.00000001e-7,0.00000100000001,0.0000100000001,0.000100000001,0.00100000001,0.0100000001,0.100000001,1.00000001,10.0000001,100.000001,1000.00001,10000.0001,100000.001,1000000.01,10000000.1,100000001,1000000010,10000000100,100000001000,1000000010000,10000000100000,100000001000000,1000000010000000,10000000100000000,100000001000000000,1000000010000000000,10000000100000000000,100000001000000000000,1.00000001e+21,1.00000001e+22,1.00000001e+23,1.00000001e+24,1.00000001e+25,1.00000001e+26,1.00000001e+27,1.00000001e+28,1.00000001e+29,1.00000001e+30]',
 '39a9041f3225307c2a49d343baf157ed654bd73b3adcd593751e3d0bc0f15cc1'),
(108, 'every alignment of 1234567890123456', '[1234567890123456e-26,1234567890123456e-25,1234567890123456e-24,1234567890123456e-23,1234567890123456e-22,1234567890123456e-21,1234567890123456e-20,1234567890123456e-19,1234567890123456e-18,1234567890123456e-17,1234567890123456e-16,1234567890123456e-15,1234567890123456e-14,1234567890123456e-13,1234567890123456e-12,1234567890123456e-11,1234567890123456e-10,1234567890123456e-9,1234567890123456e-8,1234567890123456e-7,1234567890123456e-6,1234567890123456e-5,1234567890123456e-4,1234567890123456e-3,1234567890123456e-2,1234567890123456e-1,1234567890123456e0,1234567890123456e1,1234567890123456e2,1234567890123456e3,1234567890123456e4,1234567890123456e5,1234567890123456e6,1234567890123456e7,1234567890123456e8,1234567890123456e9,1234567890123456e10,1234567890123456e11,1234567890123456e12,1234567890123456e13,1234567890123456e14,1234567890123456e15,1234567890123456e16,1234567890123456e17,1234567890123456e18,1234567890123456e19,1234567890123456e20,1234567890123456e21,1234567890123456e22]',
 '[1.234567890123456e-11,1.234567890123456e-10,1.234567890123456e-9,1.234567890123456e-8,1.234567890123456e-7,0.000001234567890123456,0.00001234567890123456,0.0001234567890123456,0.001234567890123456,0.01234567890123456,0.1234567890123456,1.234567890123456,12.34567890123456,123.4567890123456,1234.567890123456,12345.67890123456,123456.7890123456,1234567.890123456,12345678.90123456,123456789.0123456,1234567890.123456,12345678901.23456,123456789012.3456,1234567890123.456,12345678901234.56,123456789012345.6,1234567890123456,12345678901234560,123456789012345600,1234567890123456000,12345678901234560000,123456789012345600000,1.234567890123456e+21,1.234567890123456e+22,1.234567890123456e+23,1.234567890123456e+24,1.234567890123456e+25,1.234567890123456e+26,1.234567890123456e+27,1.234567890123456e+28,1.234567890123456e+29,1.234567890123456e+30,1.234567890123456e+31,1.234567890123456e+32,1.234567890123456e+33,1.234567890123456e+34,1.234567890123456e+35,1.234567890123456e+36,1.234567890123456e+37]',
 '4aa2f0454e873e93e1d1787c43544570dea9a8664a6a31e29fbdc91fb6074ad7'),
(109, 'exponent widths', '[1e99,1e100,1e999,1e1000,1e9999,1e10000,1e99999,1e100000,1e-99,1e-100,1e-999,1e-1000,1e-9999,1e-10000]',
 '[1e+99,1e+100,1e+999,1e+1000,1e+9999,1e+10000,1e+99999,1e+100000,1e-99,1e-100,1e-999,1e-1000,1e-9999,1e-10000]',
 '2fffe11471662a25319dbfdaf3637b464b9c19fb79462661523b5d0580f115a8'),
(110, 'string', '""',
 '""',
 '12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126'),
(111, 'string', '" "',
 '" "',
 '52109349dabf69106e04ec2f493fb8b6ade94ea100227cccce6559ab8b96553f'),
(112, 'string', '"a"',
 '"a"',
 'ac8d8342bbb2362d13f0a559a3621bb407011368895164b628a54f7fc33fc43c'),
(113, 'string', '"\"\\\/"',
 '"\"\\/"',
 '106814b96b4576ad5efb709458f6a5e1d0b0653cf234738e0ccc6c435bdef084'),
(114, 'string', '"/"',
 '"/"',
 'df7e940f72aa93cbcb6d70cc35124b0767c7a0e353043c7c24b660ea9be7b952'),
(115, 'string', '"</script>"',
 '"</script>"',
 '2d40980182843ee8c9ae26d20a46d351df4b2afe464b44f29a6074285deb431e'),
(116, 'string', '"it''s"',
 '"it''s"',
 'e8a14e7df117da8182c2c867aef6f99b3d4a436044f60d375fe7db38695a3777'),
(117, 'string', '"\\u0041"',
 '"\\u0041"',
 'a304e6cf4f008495aab4bc0cb1e001588fbba8652a458f7a7271727730a54005'),
(118, 'string', '"\u0041\u0062"',
 '"Ab"',
 'd050f5a3e87ed8c7431fd1eefd40e2b3b25127eac48253f5ecbf701ccaf32222'),
(119, 'string', '"null"',
 '"null"',
 'f072cbec3bf8841871d4284230c5e983dc211a56837aed862487148f947d1a1f'),
(120, 'string', '"4.50"',
 '"4.50"',
 'b260513effe1404b72fbce3df0f49a5437642add8c2671e3fef90a5c1a142a74'),
(121, 'short escapes', '"\b\t\n\f\r"',
 '"\b\t\n\f\r"',
 '6e62a535b04fecef3e63e0a67bc2a0657383132fed040cbe7fcb725ed72bae27'),
(122, 'short escapes', '"\u0008\u0009\u000A\u000a\u000C\u000D"',
 '"\b\t\n\n\f\r"',
 '27202babdc4ddcaa8ab49ebf0c10b4280594c3de48e5c8c323abb680c08a60ae'),
(123, 'all controls', '"\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008\u0009\u000A\u000B\u000C\u000D\u000E\u000F\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001A\u001B\u001C\u001D\u001E\u001F"',
 '"\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f"',
 '2f0c589a754d4b5062a261dcfef1577ec60f2d23843fb5a2eb2f67b00e9901ef'),
(124, 'controls as keys', '{"\u001f":31,"\u001e":30,"\u001d":29,"\u001c":28,"\u001b":27,"\u001a":26,"\u0019":25,"\u0018":24,"\u0017":23,"\u0016":22,"\u0015":21,"\u0014":20,"\u0013":19,"\u0012":18,"\u0011":17,"\u0010":16,"\u000f":15,"\u000e":14,"\u000d":13,"\u000c":12,"\u000b":11,"\u000a":10,"\u0009":9,"\u0008":8,"\u0007":7,"\u0006":6,"\u0005":5,"\u0004":4,"\u0003":3,"\u0002":2,"\u0001":1}',
 '{"\u0001":1,"\u0002":2,"\u0003":3,"\u0004":4,"\u0005":5,"\u0006":6,"\u0007":7,"\b":8,"\t":9,"\n":10,"\u000b":11,"\f":12,"\r":13,"\u000e":14,"\u000f":15,"\u0010":16,"\u0011":17,"\u0012":18,"\u0013":19,"\u0014":20,"\u0015":21,"\u0016":22,"\u0017":23,"\u0018":24,"\u0019":25,"\u001a":26,"\u001b":27,"\u001c":28,"\u001d":29,"\u001e":30,"\u001f":31}',
 '905d29feb3ddc3e5de889bcad699c30bea3eaed51dab456e6cb564e2d63c5447'),
(125, 'raw above 1F', '"\u007f\u0080\u009f\u00a0\u00ad"',
 U&'"\007F\0080\009F\00A0\00AD"',
 '9b996aa9694e92c86369a1bdd1cdfc7e252e6645be06f951458f031ef6b91d25'),
(126, 'raw above 1F', U&'"\007F\0080"',
 U&'"\007F\0080"',
 '43b95ba33161eef127ba934881064f7b7fb85127ff192d862411ccb34ce9b055'),
(127, 'raw above 1F', '"\u2028\u2029"',
 U&'"\2028\2029"',
 'e3a0e2262ac7790f4df36b522a8fbdd4ee3370d568eb15dc25c5f1775f14ed6c'),
(128, 'raw above 1F', U&'"\2028\2029"',
 U&'"\2028\2029"',
 'e3a0e2262ac7790f4df36b522a8fbdd4ee3370d568eb15dc25c5f1775f14ed6c'),
(129, 'raw above 1F', '"\u200b\ufeff"',
 U&'"\200B\FEFF"',
 '66daaced8d692db76ac3600e2b5c1aee4a94074a3e424ea1428d7da7d1c49343'),
(130, 'planes', '"\u00e9\u20ac\ud7ff\ue000\ufffd"',
 U&'"\00E9\20AC\D7FF\E000\FFFD"',
 '3875bb44de964b7fc849e850bd1e4cccc5860f96b3fa394e03014da53010d238'),
(131, 'planes', '"\uffff\ufffe"',
 U&'"\FFFF\FFFE"',
 'a10193cf5f6c24862fadf16b33320849c77f2eebc306a211c8810c664715d2f3'),
(132, 'planes', '"\ud83d\ude02"',
 U&'"\+01F602"',
 '6405089099a01412c0949f00fd2fcd5ecc32a3e481b3e16d3691ab79f9d9342c'),
(133, 'planes', U&'"\+01F602"',
 U&'"\+01F602"',
 '6405089099a01412c0949f00fd2fcd5ecc32a3e481b3e16d3691ab79f9d9342c'),
(134, 'planes', '"\ud800\udc00\udbff\udfff"',
 U&'"\+010000\+10FFFF"',
 'f66ee6ebfc339a9a088ba6aad2b9f9220a172ea0d0e26c1997e0eca868d7d0f8'),
(135, 'planes', '"\uD83D\uDE02"',
 U&'"\+01F602"',
 '6405089099a01412c0949f00fd2fcd5ecc32a3e481b3e16d3691ab79f9d9342c'),
(136, 'no normalization', '"\u00c5"',
 U&'"\00C5"',
 '20d8dab8ec900ac4fb89517b03abf6cf0c88fb9488ad3530519d98e9b6a6046c'),
(137, 'no normalization', '"A\u030a"',
 U&'"A\030A"',
 '5e08c805d43712243359f6af174695dc0bd71b8371e859ec5d74d65fca0c431d'),
(138, 'no normalization', '"\u212b"',
 U&'"\212B"',
 '95a36f1c98e9242500cd22576796c2b993e8c62d8a44c1a77638036c144ed643'),
(139, 'no normalization', '{"\u00e9":1,"e\u0301":2}',
 U&'{"e\0301":2,"\00E9":1}',
 'a7962fb10dc1255be368ece9c22b2256605921dc6d0a8c9409d3ee406bcb86e5'),
(140, 'array', '[]',
 '[]',
 '4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945'),
(141, 'array', '[ ]',
 '[]',
 '4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945'),
(142, 'array', '[[]]',
 '[[]]',
 'cf1cbb66a638b4860a516671fb74850e6ccf787fe6c4c8d29e9c04efe880bd05'),
(143, 'array', '[{}]',
 '[{}]',
 'e10808d43975dc400731053386849f864f297e6c4f7519c380f3dbaf7067a840'),
(144, 'array', '[[],[[]],{}]',
 '[[],[[]],{}]',
 'f3cad45c54789b49d017451cd0e5f0fe76c0867d3e196706171b024954363c1f'),
(145, 'array', '[1,2]',
 '[1,2]',
 '49a64717d5d4cb19952e6eac2946415cf6879adacf9908e7d872332d32c6e684'),
(146, 'array', '[2,1]',
 '[2,1]',
 'af1a1fc110b6094c48582b0ef83553cb7908d7a4365424eef28e76ef6c88d630'),
(147, 'array', '[1, "1", true, null, [1.0], {"1": 1e0}]',
 '[1,"1",true,null,[1],{"1":1}]',
 '917f358d90de8e791bed817a3b202501cc0fed983b36a00c72cbae7b2e1096a7'),
(148, 'array', '[null]',
 '[null]',
 '1d8fc6ceb1f94c6326d6d5483d258fcb2e179e9869325b245d105c2219bf69fd'),
(149, 'object', '{}',
 '{}',
 '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'),
(150, 'object', '{ }',
 '{}',
 '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'),
(151, 'object', '{"":{}}',
 '{"":{}}',
 '53ed392aab7233d10f2fc1915f8d15da641501c8b04ee20cb89ab851380188ec'),
(152, 'object', '{"a":[]}',
 '{"a":[]}',
 '50e8660084976a10f0b3b9b3a6352d5881cbd219b5587a26224971a60ff2cc55'),
(153, 'object', '{"a":1,"b":2}',
 '{"a":1,"b":2}',
 '43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777'),
(154, 'object', '{"b":2,"a":1}',
 '{"a":1,"b":2}',
 '43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777'),
(155, 'object', '{"a":1,"a":2}',
 '{"a":2}',
 '7e8059f495589fcd981232cc11d00b00da3802c01d688fa1cf1f6bed6e5bb33c'),
(156, 'object', '{"a":null}',
 '{"a":null}',
 'd091f9c83c091f79652fe8786375b3fe4ce0861a56f5bfbafedbe431877ff0e8'),
(157, 'object', '{"a":{"b":{"d":1,"c":2}},"A":[{"z":1,"y":2}]}',
 '{"A":[{"y":2,"z":1}],"a":{"b":{"c":2,"d":1}}}',
 'ce992bb034347333fee549a50cc83baea8cc0726431c03b1ecdec38ffc77af08'),
(158, 'length against bytes', '{"b":1,"aa":2,"aaa":3,"B":4,"":5,"a":6}',
 '{"":5,"B":4,"a":6,"aa":2,"aaa":3,"b":1}',
 'e4c92a5ec8bbb14a9af9e711009bcd67de0bf0169dcb44b1701159b305c5f268'),
(159, 'length against bytes', '{"z":1,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":2}',
 '{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":2,"z":1}',
 '8da7e43680340b18e256def4211649d3399685d06054249f07c1dcd271aba20e'),
(160, 'length against bytes', '{"10":1,"9":2,"1":3,"100":4,"2":5}',
 '{"1":3,"10":1,"100":4,"2":5,"9":2}',
 'a3212c2ebc0b85059ca9eceaffebfe44db0bc7b4b10927b97ca37865d5b5feb4'),
(161, 'prefixes', '{"abc":1,"ab":2,"a":3,"":4,"abd":5,"ac":6}',
 '{"":4,"a":3,"ab":2,"abc":1,"abd":5,"ac":6}',
 '74d0c11d5b387f7036bcb9f349ea82b809e9d598acdce5f182459fa1308fce09'),
(162, 'prefixes', '{"\ud83d\ude02\ud83d\ude02":1,"\ud83d\ude02":2,"\ud83d\ude02a":3}',
 U&'{"\+01F602":2,"\+01F602a":3,"\+01F602\+01F602":1}',
 'b3f9189063682bb6b6c2a4bd39aaadf99586a6302985e59fd65060e98f10b231'),
(163, 'prefixes', '{"\ue000\ue000":1,"\ue000":2}',
 U&'{"\E000":2,"\E000\E000":1}',
 '7a877234d63aba10bd44a5938acb4343e15796d69d5e9a7e5b65025d85abfa92'),
(164, 'keys with escapes', '{"\"":1,"\\":2,"/":3,"\n":4," ":5,"\u007f":6}',
 U&'{"\\n":4," ":5,"\\"":1,"/":3,"\\\\":2,"\007F":6}',
 'f9e72f57e2bcfb0b854718872e79408c048748a21c5257ec933cc9253373c6a9'),
(165, 'UTF-16 order', '{"\ue000":1,"\ud800\udc00":2}',
 U&'{"\+010000":2,"\E000":1}',
 '9d4cdc71dda603c42f9b21d88d0c2ffc31a76cd1bd461d7359406cf169845f1e'),
(166, 'UTF-16 order', '{"\uffff":1,"\udbff\udfff":2}',
 U&'{"\+10FFFF":2,"\FFFF":1}',
 '02be03c6b71d390a9693de97349c98d3d64ce500be43bfd777f9cd52a8b9752d'),
(167, 'UTF-16 order', '{"\ufffd":1,"\ud83d\ude02":2}',
 U&'{"\+01F602":2,"\FFFD":1}',
 'd57cdb02f7fcae27e3eba5198cd96a4051dd147e2dc8b8ffe53f964394688770'),
(168, 'UTF-16 order', '{"\uf8ff":1,"\uffff":2,"\ue000":3,"\ufffd":4,"\ud800\udc00":5,"\udbff\udfff":6,"\ud7ff":7,"\u20ac":8,"\u00e9":9,"z":10,"\u0800":11,"\u07ff":12}',
 U&'{"z":10,"\00E9":9,"\07FF":12,"\0800":11,"\20AC":8,"\D7FF":7,"\+010000":5,"\+10FFFF":6,"\E000":3,"\F8FF":1,"\FFFD":4,"\FFFF":2}',
 'f9d186e3b597620703dd1bc114d314505ca6279cfb933313cb28de418d01a265'),
(169, 'UTF-16 order', '{"a\ue000":1,"a\ud83d\ude02":2,"a\ud7ff":3,"a":4}',
 U&'{"a":4,"a\D7FF":3,"a\+01F602":2,"a\E000":1}',
 'b75100c7cbfa270f6122f171b2a55fa4df68abb5eea8fc9f5f3047ce80df854c'),
(170, 'UTF-16 order', '{"\ud83d\ude02\ufffd":1,"\ud83d\ude02\ud83d\ude03":2,"\ud83d\ude01\uffff":3,"\ud83d\ude02":4}',
 U&'{"\+01F601\FFFF":3,"\+01F602":4,"\+01F602\+01F603":2,"\+01F602\FFFD":1}',
 '51422445a26595a17e802235b76250fe2330f755f256bacd3c712e9c3ba41014'),
(171, 'UTF-16 order', '{"\ufb33":"dagesh","\ud83d\ude02":"smiley","\u20ac":"euro","\u00f6":"o","1":"one","\u0080":"control"}',
 U&'{"1":"one","\0080":"control","\00F6":"o","\20AC":"euro","\+01F602":"smiley","\FB33":"dagesh"}',
 '1b0d5d47971cda4ea8b367c508674ac6526d8466b5ccd86afffbd9b0c4ae37ab'),
(172, 'UTF-16 order', '{"\uef00":1,"\uee00":2,"\ued00":3,"\ud7ff":4,"\udbc0\udc00":5,"\ud840\udc00":6}',
 U&'{"\D7FF":4,"\+020000":6,"\+100000":5,"\ED00":3,"\EE00":2,"\EF00":1}',
 '0c7642d55e2ebcbdbc170ca1f8848b4121c0b14ef970faf104a9e631a5b4ef2d');

-- A slip in the table itself: the hash must be that of the text, by the
-- server's own SHA-256, and the text must still be the same document.
-- Expected: no row.
SELECT n, what FROM golden
WHERE digest <> encode(sha256(convert_to(canonical, 'UTF8')), 'hex')
	OR canonical::jsonb <> input::jsonb;

-- Rows that come out differently.  Expected: no row.
CREATE TEMP VIEW wrong AS
SELECT n, what, fencing_canonical(input::jsonb) AS got_canonical,
	encode(fencing_digest(input::jsonb), 'hex') AS got_digest
FROM golden
WHERE fencing_canonical(input::jsonb) IS DISTINCT FROM canonical
	OR fencing_digest(input::jsonb) IS DISTINCT FROM decode(digest, 'hex');
TABLE wrong;

-- Canonical text is a fixed point, and version 1 is the default.
-- Expected: all rows, three times.
SELECT count(*) AS rows,
	count(*) FILTER (WHERE fencing_canonical(canonical::jsonb) = canonical) AS fixed_point,
	count(*) FILTER (WHERE fencing_canonical(input::jsonb, 1) = canonical
		AND fencing_digest(input::jsonb, 1) = decode(digest, 'hex')
		AND octet_length(fencing_digest(input::jsonb, digest_version => 1)) = 32) AS version_1
FROM golden;

-- Equal text and equal digest if and only if equal as jsonb, over all pairs of
-- the table.  Expected: 172 * 172 pairs, none wrong, and some equal ones that
-- are not the same row.
WITH doc AS (
	SELECT n, input::jsonb AS doc, fencing_canonical(input::jsonb) AS text, fencing_digest(input::jsonb) AS digest
	FROM golden)
SELECT count(*) AS pairs,
	count(*) FILTER (WHERE (a.doc = b.doc) <> (a.text = b.text)
		OR (a.doc = b.doc) <> (a.digest = b.digest)) AS wrong,
	count(*) FILTER (WHERE a.doc = b.doc AND a.n <> b.n) > 0 AS some_equal
FROM doc a, doc b;

--
-- Documents that are too long to be written down: octets of the text, and hash
--
CREATE TEMP TABLE large (what text NOT NULL, doc jsonb NOT NULL, octets int NOT NULL, digest text NOT NULL);
INSERT INTO large VALUES
('long string', to_jsonb(repeat('x', 100000)),
 100002, '55bb3c98333f4f20aa23ec49458f604541b9b5413cdf3b90ad17ceae5653b036'),
('long string to be escaped', to_jsonb(repeat(E'\x01"', 50000)),
 400002, '2ef93f53c1c6f50922b995fdea3802371436392d46f11f8cb87d458e9a83a040'),
('every code point', (SELECT to_jsonb(string_agg(chr(i), '' ORDER BY i)) FROM generate_series(1, 1114111) i WHERE i NOT BETWEEN 55296 AND 57343),
 4382730, 'e46b4e8ee597bf9e2ca4739f4f7c06597e0aecdddd0be126a6c7ffd60b3d940a'),
('every BMP code point as a key, and every 97th beyond', (SELECT jsonb_object_agg(chr(i), i) FROM generate_series(1, 1114111) i WHERE i < 55296 OR i BETWEEN 57344 AND 65535 OR i > 65535 AND i % 97 = 0),
 900863, '2114cf87d20f716b803b977a167cd3aa4b0461da8714b5b3d364a021263f0047'),
('many keys', (SELECT jsonb_object_agg('k' || i, i) FROM generate_series(1, 20000) i),
 277789, '65023eecda42c6772aa2a03724ac350a3e6319ad0d5b298fc7171659fa36f781'),
('keys that differ at the end of a long prefix', (SELECT jsonb_object_agg(repeat('p', i % 50) || chr(57344 + i) || chr(65536 + i), i) FROM generate_series(1, 1000) i),
 38394, 'cb0b043892080713ca6eaa1d96fa63c5ae70b4ad4f1de33de57dcc8e05283d58'),
('many numbers', (SELECT jsonb_agg(i * 0.125 ORDER BY i) FROM generate_series(-20000, 20000) i),
 322249, '84327d640a6d04c2d36cee954daa494033daccbd6554328c80625ce863f59b6d'),
('powers of ten', (SELECT jsonb_agg((CASE WHEN i % 2 = 0 THEN '-7e' ELSE '1234567e' END || i)::numeric ORDER BY i) FROM generate_series(-1000, 1000) i),
 21880, '3e38414b367850b647daa4f36e6dc1ca82101a435746239c97bfd8891a97fbcd'),
('131072 digits', to_jsonb(repeat('9', 131072)::numeric),
 131081, 'd8192486ff3241a00389c917467814e24731af520412828a334031ebb311eee7'),
('131072 digits and 16383', to_jsonb((repeat('12', 65536) || '.' || repeat('0', 16382) || '1')::numeric),
 147464, '6c6e75123abfb0907c68722b5b5f41de5fcce1b4a0ec55b93b70cf943733eca0'),
('16383 digits after the point', to_jsonb(('-0.' || repeat('37', 8191) || '1')::numeric),
 16386, '1a7f268aa9ad43918d5b3fbf788f2e646954bae2950c0e789bcb45fbba3ea33b'),
('512 arrays', (repeat('[', 512) || repeat(']', 512))::jsonb,
 1024, '674cf3304bf7104f5ef200c1bb17b24a9b1da199f47cc76bcdc7fd030da23491'),
('512 objects', (repeat('{"a":', 512) || '1' || repeat('}', 512))::jsonb,
 3073, 'c579cfdf078f12d50e2ff9ad32b8046d3a07bf7172fc701594197b29e8595131'),
('256 objects and 256 arrays', (repeat('{"b":[', 256) || 'null' || repeat(',1],"a":false}', 256))::jsonb,
 5124, '2d77038fcd878a3c8f3d3e667cb83524d028afda3fb091aebec5c2f5d0b33d0e');

-- Expected: no row, from the table (some are stored out of line) and from
-- memory alike.
CREATE TEMP VIEW wrong_large AS
SELECT what, octets, octet_length(fencing_canonical(doc)) AS got_octets,
	encode(fencing_digest(doc), 'hex') AS got_digest
FROM large
WHERE octet_length(fencing_canonical(doc)) IS DISTINCT FROM octets
	OR fencing_digest(doc) IS DISTINCT FROM decode(digest, 'hex')
	OR sha256(convert_to(fencing_canonical(doc), 'UTF8')) IS DISTINCT FROM decode(digest, 'hex');
TABLE wrong_large;
SELECT count(*) AS rows,
	count(*) FILTER (WHERE fencing_digest(doc || '{}') = decode(digest, 'hex')) AS objects_from_memory
FROM large WHERE jsonb_typeof(doc) = 'object';

-- Every place in a string that a quote, a control and a character of four
-- octets can have, from one octet to well over a machine word or a vector
-- register.  Expected: 0 wrong.
SELECT count(*) AS strings, count(*) FILTER (WHERE fencing_canonical(to_jsonb(repeat('a', i) || c.raw || repeat('b', j)))
	IS DISTINCT FROM '"' || repeat('a', i) || c.canonical || repeat('b', j) || '"') AS wrong
FROM generate_series(0, 70) i, generate_series(0, 70, 7) j,
	(VALUES ('"', '\"'), ('\', '\\'), (E'\x1f', '\u001f'), (E'\n', '\n'), ('/', '/'), (E'\x7f', E'\x7f'),
		(U&'\+01F602', U&'\+01F602'), (U&'\2028"', U&'\2028\\"')) c(raw, canonical);

--
-- The same documents made another way than by parsing
--
-- Expected: 1.5, then the string "NaN" and its like (jsonb has no such
-- numbers), then true for each.
SELECT fencing_canonical(to_jsonb(1.5000::numeric)) AS trailing_zeros,
	fencing_canonical(to_jsonb('NaN'::numeric)) AS numeric_nan,
	fencing_canonical(to_jsonb('-Infinity'::numeric)) AS numeric_infinity,
	fencing_canonical(to_jsonb('NaN'::float8)) AS float_nan;
SELECT fencing_canonical(jsonb_build_object('b', 1.10, 'a', jsonb_build_array(0.00, NULL, 'x')))
	= fencing_canonical('{"a":[0,null,"x"],"b":1.1}') AS built,
	fencing_canonical('{"x":{"b":[1.0],"a":"\u00e9"}}'::jsonb -> 'x')
	= fencing_canonical('{"a":"\u00e9","b":[1]}') AS inner_object,
	fencing_canonical('{"x":[2.0,[3]]}'::jsonb -> 'x' -> 0) = '2' AS inner_scalar,
	fencing_canonical(jsonb_set('{"a":1,"b":[1,2]}', '{b,1}', '2.000'))
	= fencing_canonical('{"b":[1,2],"a":1}') AS changed,
	fencing_canonical('{"a":1,"b":2,"c":3}'::jsonb - 'b') = '{"a":1,"c":3}' AS removed,
	fencing_digest((1 / 4.0)::text::jsonb) = fencing_digest('0.25') AS computed;
-- A scalar is not the array of it.  Expected: false.
SELECT fencing_digest('1') = fencing_digest('[1]') AS scalar_is_array;

--
-- Nesting: 512 is the last that is accepted, whatever the kind of container
-- and wherever the deep place is; a scalar adds nothing
--
CREATE FUNCTION pg_temp.arrays(depth int, inner_text text DEFAULT '') RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$SELECT (repeat('[', depth) || inner_text || repeat(']', depth))::jsonb$$;
CREATE FUNCTION pg_temp.objects(depth int, inner_text text DEFAULT '1') RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$SELECT (repeat('{"k":', depth) || inner_text || repeat('}', depth))::jsonb$$;

-- Expected: 1024, 1024 + 6, 1020 + 5, 512 * 6 + 1
SELECT length(fencing_canonical(pg_temp.arrays(512))) AS arrays_512,
	length(fencing_canonical(pg_temp.arrays(512, '"deep"'))) AS arrays_512_with_scalar,
	length(fencing_canonical(pg_temp.arrays(510, '[],{}'))) AS arrays_511_twice,
	length(fencing_canonical(pg_temp.objects(512))) AS objects_512;
-- Expected: 54000 for every one that is deeper
SELECT fencing_canonical(pg_temp.arrays(513));
SELECT fencing_digest(pg_temp.arrays(513));
SELECT fencing_canonical(pg_temp.arrays(513, 'true'));
SELECT fencing_canonical(pg_temp.objects(513));
SELECT fencing_digest(pg_temp.objects(513));
SELECT fencing_digest(pg_temp.objects(512, '[]'));
SELECT fencing_digest(pg_temp.arrays(512, '{}'));
SELECT fencing_digest(jsonb_build_object('a', 1, 'b', jsonb_build_array(pg_temp.arrays(511)), 'c', 2));
SELECT fencing_digest(pg_temp.arrays(5000));
SELECT fencing_digest(pg_temp.objects(5000));

-- CASES 37: two different documents that are too deep are two errors, never
-- one identity; two different ones of just the allowed depth stay different.
SELECT fencing_digest(pg_temp.arrays(600, '"one"'));
SELECT fencing_digest(pg_temp.arrays(600, '"two"'));
SELECT fencing_digest(pg_temp.arrays(512, '"one"')) = fencing_digest(pg_temp.arrays(512, '"two"')) AS merged;

--
-- Versions, NULLs, attributes
--
-- Expected: LF002
SELECT fencing_canonical('{}', 0);
SELECT fencing_canonical('{}', 2);
SELECT fencing_canonical('{}', -1);
SELECT fencing_canonical('{}', 2147483647);
SELECT fencing_digest('{}', 0);
SELECT fencing_digest('{}', 2);
SELECT fencing_digest('{}', -1);
SELECT fencing_digest('{}', (-2147483648)::int);
-- Expected: NULL, no error
SELECT fencing_canonical(NULL) IS NULL AS canonical, fencing_canonical('{}', NULL) IS NULL AS canonical_version,
	fencing_digest(NULL) IS NULL AS digest, fencing_digest('{}', NULL) IS NULL AS digest_version,
	fencing_canonical(NULL, 2) IS NULL AS null_and_unknown;
-- Expected: immutable, strict, parallel safe, for everybody
SELECT p.oid::regprocedure, p.provolatile, p.proisstrict, p.proparallel,
	has_function_privilege('public', p.oid, 'EXECUTE') AS public
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'fencing'
WHERE p.proname IN ('fencing_canonical', 'fencing_digest') ORDER BY p.proname;
-- so they may stand in an index
CREATE INDEX golden_digest ON golden (fencing_digest(input::jsonb));

--
-- Nothing depends on a setting.  Expected: no row, every time.
--
CREATE TEMP TABLE deep (what text, doc jsonb, digest bytea);
INSERT INTO deep SELECT what, doc, decode(digest, 'hex') FROM large WHERE what LIKE '%512%' OR what LIKE '256 %';
SET DateStyle = 'German, DMY';
SET IntervalStyle = 'sql_standard';
SET TimeZone = 'Asia/Kolkata';
SET extra_float_digits = -15;
SET bytea_output = 'escape';
SET standard_conforming_strings = off;
SET escape_string_warning = off;
SET backslash_quote = off;
SET work_mem = '64kB';
TABLE wrong;
SET extra_float_digits = 3;
SET DateStyle = 'SQL, MDY';
SET client_encoding = 'LATIN1';
SET search_path = pg_catalog;
TABLE pg_temp.wrong;
RESET ALL;
SET client_encoding = 'UTF8';
-- With the smallest stack that the server allows, 512 levels still have their
-- digest, and 513 their error: depth is part of version 1, the stack is not.
-- Parsing needs the stack, so the documents come from tables.
CREATE TEMP TABLE too_deep AS SELECT pg_temp.arrays(513) AS doc UNION ALL SELECT pg_temp.objects(600);
SELECT count(*) AS deep_documents FROM deep;
SET max_stack_depth = '100kB';
SELECT what FROM deep WHERE fencing_digest(doc) IS DISTINCT FROM digest
	OR sha256(convert_to(fencing_canonical(doc), 'UTF8')) IS DISTINCT FROM digest;
SELECT fencing_digest(doc) FROM too_deep;
TABLE wrong;
RESET max_stack_depth;

--
-- A number far from the point stays short, and costs no more than others: each
-- of these written out is 131 kB, all of them 26 GB.
--
SET statement_timeout = '60s';
SELECT length(fencing_canonical('1e131071')) AS one,
	length(fencing_canonical(('[1e131071' || repeat(',1e131071', 199999) || ']')::jsonb)) AS array_of_200000,
	length(fencing_canonical(('[1e-16383' || repeat(',1e-16383', 199999) || ']')::jsonb)) AS of_small_ones;
RESET statement_timeout;

--
-- CASES 25, 38, 39: what a retry may change, and what it may not
--
-- Tokens are kept in variables: other tests of this database issue some too.
BEGIN;
SELECT token AS token FROM fencing_acquire('canonical/25', '00000000-0000-4000-8000-000000000025') \gset
-- Expected: committed, replayed (keys in another order), conflict (array in
-- another order), conflict (key renamed)
SELECT outcome FROM fencing_commit('canonical/25', :token, '{"items":[1,2,3],"name":"a","at":{"x":1,"y":2}}');
SELECT outcome FROM fencing_commit('canonical/25', :token, '{"at":{"y":2,"x":1},"name":"a","items":[1,2,3]}');
SELECT outcome FROM fencing_commit('canonical/25', :token, '{"items":[2,1,3],"name":"a","at":{"x":1,"y":2}}');
SELECT outcome FROM fencing_commit('canonical/25', :token, '{"items":[1,2,3],"Name":"a","at":{"x":1,"y":2}}');
-- The receipt keeps the digest with its version.  Expected: 1, true, true
SELECT digest_version, digest = fencing_digest('{"items":[1,2,3],"name":"a","at":{"x":1,"y":2}}') AS same,
	encode(digest, 'hex') = '16f22b3d94f23a7ff1ed8bc879fcdc9c747ad76c8f548a3f56bb71a6924d8dce' AS frozen
FROM fencing_receipt('canonical/25', :token);
COMMIT;

-- Expected: jsonb::text separates them, the digest does not; a retry replays
SELECT '1.01'::jsonb::text = '1.010'::jsonb::text AS same_text,
	fencing_digest('1.01') = fencing_digest('1.010') AS same_digest;
BEGIN;
SELECT token AS token FROM fencing_acquire('canonical/38', '00000000-0000-4000-8000-000000000038') \gset
-- Expected: committed, replayed, replayed, conflict
SELECT outcome FROM fencing_commit('canonical/38', :token, '{"amount":1.01,"n":100}');
SELECT outcome FROM fencing_commit('canonical/38', :token, '{"amount":1.010,"n":1e2}');
SELECT outcome FROM fencing_commit('canonical/38', :token, '{"n":100.0,"amount":0.00101e3}');
SELECT outcome FROM fencing_commit('canonical/38', :token, '{"amount":1.011,"n":100}');
COMMIT;

-- Keys go by UTF-16 (the supplementary one first), and numbers that are one
-- double stay two.  Expected: the smiley before U+FFFD; 4 distinct.
SELECT fencing_canonical('{"\ufffd":1,"\ud83d\ude02":2}') = U&'{"\+01F602":2,"\FFFD":1}' AS utf16_order;
SELECT count(DISTINCT fencing_digest(d)) AS distinct_digests
FROM (VALUES ('9007199254740992'::jsonb), ('9007199254740993'), ('9007199254740992.5'), ('9007199254740994')) v(d);
BEGIN;
SELECT token AS token FROM fencing_acquire('canonical/39', '00000000-0000-4000-8000-000000000039') \gset
-- Expected: committed, conflict, replayed
SELECT outcome FROM fencing_commit('canonical/39', :token, '{"id":9007199254740993,"\ud83d\ude02":1,"\ufffd":2}');
SELECT outcome FROM fencing_commit('canonical/39', :token, '{"id":9007199254740992,"\ud83d\ude02":1,"\ufffd":2}');
SELECT outcome FROM fencing_commit('canonical/39', :token, '{"\ufffd":2,"\ud83d\ude02":1,"id":9007199254740993.0}');
COMMIT;

-- A payload that is too deep takes nothing with it.  Expected: 54000 twice,
-- then committed with 512 levels under the same token
SELECT token AS token FROM fencing_acquire('canonical/37', '00000000-0000-4000-8000-000000000037') \gset
SELECT outcome FROM fencing_commit('canonical/37', :token, pg_temp.arrays(513, '1'), 'SELECT 1');
SELECT outcome FROM fencing_commit('canonical/37', :token, pg_temp.arrays(513, '2'), 'SELECT 1');
SELECT count(*) AS receipts FROM fencing_receipt('canonical/37', :token);
SELECT outcome FROM fencing_commit('canonical/37', :token, pg_temp.arrays(512, '1'), 'SELECT 1');
SELECT outcome FROM fencing_commit('canonical/37', :token, pg_temp.arrays(513, '1'), 'SELECT 1');

-- leave no job behind
SELECT fencing_release('canonical/' || j, ('00000000-0000-4000-8000-0000000000' || j)::uuid, l.token)
FROM (VALUES ('25'), ('37'), ('38'), ('39')) v(j)
JOIN fencing.lease_status l ON l.job_key = 'canonical/' || j ORDER BY j;
-- nor an object that DROP EXTENSION would find while this backend ends
DROP VIEW wrong, wrong_large;
DROP TABLE golden, large;
